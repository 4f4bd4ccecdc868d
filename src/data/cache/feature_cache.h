// Decoded or transformed samples kept for the next epoch, in memory or on disk. The key is the sample's content and
// every setting that shapes the result, so a changed setting never meets a stale entry. Nothing is evicted: an epoch
// visits every sample once, so the first that fit are worth as much as any others, and what LRU would keep is never
// what comes next.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>

#include "data/sample.h"

namespace redline::data {

// Threads: any.
class FeatureCache {
 public:
  virtual ~FeatureCache() = default;
  virtual std::optional<Sample> find(uint64_t key) = 0;  // shares arrays with the cache
  virtual void insert(uint64_t key, const Sample& sample) = 0;
  virtual int64_t num_bytes() const = 0;

  int64_t hits() const { return hits_.load(std::memory_order_relaxed); }
  int64_t misses() const { return misses_.load(std::memory_order_relaxed); }

 protected:
  void count(bool hit) { (hit ? hits_ : misses_).fetch_add(1, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> hits_{0}, misses_{0};
};

std::unique_ptr<FeatureCache> make_memory_cache(int64_t limit_bytes);

// Files in `directory`/<settings as hex>/: several shards, each a list of records with checksums. A record that does
// not check is dropped and made again; a torn tail is cut off. A second process finds the first one's entries but adds
// none (the first holds the lock). Throws DiskError when the folder cannot be made.
std::unique_ptr<FeatureCache> make_disk_cache(const std::filesystem::path& directory, uint64_t settings,
                                              int64_t limit_bytes);

// A sample as bytes and back; nullopt for bytes that are not one. Used by the disk cache.
std::string serialize_sample(const Sample& sample);
std::optional<Sample> deserialize_sample(std::string_view bytes);

}  // namespace redline::data
