// Decoded row groups with a byte limit, least recently used out first. When the whole table fits the limit nothing is
// ever dropped, and a loaded group is found with one atomic load: that is the state in which a full shuffle runs.
// Threads: any. A group is decoded once; others who want it meanwhile wait. Groups decoded at the same time stay within
// the limit too, but for one that is larger by itself.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/parquet/parquet_files.h"

namespace redline::data {

struct DecodedRowGroup {
  std::vector<ParquetColumnData> columns;
  std::string broken;  // why it could not be decoded; then there are no columns
  uint64_t num_bytes = 0;
};

class RowGroupCache {
 public:
  RowGroupCache(const ParquetFiles& files, uint64_t max_bytes, bool widen_integers);

  // Decodes when needed. `decoded` (may be null) tells whether this call did.
  std::shared_ptr<const DecodedRowGroup> get(size_t group, bool* decoded = nullptr);
  // Only when everything fits and the group is loaded; valid as long as the cache.
  const DecodedRowGroup* resident(size_t group) const {
    return slots_[group].published.load(std::memory_order_acquire);
  }

  struct Stats {
    int64_t hits = 0, misses = 0;
    uint64_t bytes = 0;
  };
  Stats stats() const;

 private:
  struct Slot {
    std::shared_ptr<const DecodedRowGroup> rows;
    bool loading = false;
    uint64_t last_use = 0;
    std::atomic<const DecodedRowGroup*> published{nullptr};
  };
  std::shared_ptr<const DecodedRowGroup> decode(size_t group) const;
  void drop_oldest(size_t keep);

  const ParquetFiles& files_;
  uint64_t max_bytes_;
  bool widen_integers_;
  bool keeps_everything_ = false;
  mutable std::mutex mutex_;
  std::condition_variable loaded_;  // also: decoding_bytes_ went down
  std::vector<Slot> slots_;
  uint64_t clock_ = 0, bytes_ = 0;
  uint64_t decoding_bytes_ = 0;  // of the groups being decoded just now
  int64_t hits_ = 0, misses_ = 0;
};

}  // namespace redline::data
