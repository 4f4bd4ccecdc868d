// The cache in memory: sixteen maps with a lock each, one byte count for all.
#include "data/cache/feature_cache.h"

#include <array>
#include <mutex>
#include <unordered_map>

#include "data/workers/collate.h"

namespace redline::data {

namespace {

class MemoryCache : public FeatureCache {
 public:
  explicit MemoryCache(int64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  std::optional<Sample> find(uint64_t key) override {
    Part& part = parts_[key % parts_.size()];
    const std::lock_guard lock(part.mutex);
    const auto found = part.samples.find(key);
    count(found != part.samples.end());
    if (found == part.samples.end()) return std::nullopt;
    return found->second;
  }

  void insert(uint64_t key, const Sample& sample) override {
    constexpr int64_t kEntryBytes = 256;  // map node, names, shapes
    const int64_t bytes = data::num_bytes(sample) + kEntryBytes;
    if (bytes_.fetch_add(bytes, std::memory_order_relaxed) + bytes > limit_bytes_) {
      bytes_.fetch_sub(bytes, std::memory_order_relaxed);
      return;
    }
    Part& part = parts_[key % parts_.size()];
    const std::lock_guard lock(part.mutex);
    if (!part.samples.emplace(key, sample).second) bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }

  int64_t num_bytes() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct alignas(64) Part {
    std::mutex mutex;
    std::unordered_map<uint64_t, Sample> samples;
  };
  int64_t limit_bytes_;
  std::atomic<int64_t> bytes_{0};
  std::array<Part, 16> parts_;
};

}  // namespace

std::unique_ptr<FeatureCache> make_memory_cache(int64_t limit_bytes) {
  return std::make_unique<MemoryCache>(limit_bytes);
}

}  // namespace redline::data
