// Clips named by manifests, for a task that lays parts of them over its samples: decoded once and kept up to a limit.
// Threads: any.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <variant>
#include <vector>

#include "data/source.h"

namespace redline::data {

struct DatasetConfig;

class ClipBank {
 public:
  // Rate and rules for names as the data set's; `cache_bytes` of decoded clips are kept. Throws DataError for a
  // manifest that cannot be read.
  ClipBank(const std::vector<std::filesystem::path>& manifests, const DatasetConfig& config, int64_t cache_bytes);
  ~ClipBank();

  int64_t size() const;
  double seconds(int64_t index) const;
  // Samples [begin, begin + count) of the clip, fewer at its end; the same whether it was cached or not.
  std::variant<std::vector<float>, BadSample> window(int64_t index, double begin_seconds, int64_t count) const;
  uint64_t fingerprint() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::data
