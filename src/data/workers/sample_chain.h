// One sample's way from the source to its batch: read (or found in the cache), transformed, and replaced by the
// plan's substitute when it is bad. What happens depends on (seed, epoch, sample) alone, never on the worker that does
// it.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "data/cache/feature_cache.h"
#include "data/plan/plan.h"
#include "data/source.h"
#include "data/transform.h"
#include "data/workers/item_memory.h"

namespace redline::data {

// A sample that could not be used, met while a row of a batch was made.
struct BadEvent {
  int64_t sample = -1;
  std::string name, reason;
};

inline constexpr int kMaxSubstitutes =
    100;  // bad samples in a row, for one row or in the plan: then the data is broken

class SampleChain {
 public:
  // Results of the transforms before the first random one are cached under `settings`. `budget` is what the samples in
  // work may take together; null: each is limited by itself.
  SampleChain(std::shared_ptr<const Source> source, std::vector<std::shared_ptr<const SampleTransform>> transforms,
              std::shared_ptr<FeatureCache> cache, std::shared_ptr<const Planner> planner,
              std::shared_ptr<MemoryBudget> budget = nullptr);

  // Fills `out`, and `bad` with what was tried before it, in order. Throws what is not the sample's fault, with the
  // sample's name in front; DataError when no substitute is good either.
  void make_sample(const EpochPlan& plan, uint32_t entry, Sample& out, std::vector<BadEvent>& bad,
                   measure::StageClock::Slot& slot) const;

  const Source& source() const { return *source_; }
  const Planner& planner() const { return *planner_; }
  const FeatureCache* cache() const { return cache_.get(); }
  // What the cached part of the chain depends on besides the content.
  static std::string fingerprint(const std::vector<std::shared_ptr<const SampleTransform>>& transforms);

 private:
  std::optional<BadSample> try_sample(int64_t sample, const DrawKey& key, Sample& out,
                                      measure::StageClock::Slot& slot) const;
  std::optional<BadSample> try_within_budget(int64_t sample, const DrawKey& key, Sample& out,
                                             measure::StageClock::Slot& slot) const;
  std::optional<BadSample> transform(size_t begin, size_t end, const DrawKey& key, Sample& sample,
                                     measure::StageClock::Slot& slot) const;

  std::shared_ptr<const Source> source_;
  std::vector<std::shared_ptr<const SampleTransform>> transforms_;
  size_t num_fixed_ = 0;  // transforms before the first random one
  std::shared_ptr<FeatureCache> cache_;
  std::shared_ptr<const Planner> planner_;
  std::shared_ptr<MemoryBudget> budget_;
};

// Draws of an entry: a repeat of the same sample in an epoch draws other numbers.
DrawKey draw_key(const EpochPlan& plan, uint64_t seed, uint32_t entry);

// The current exception with "sample NAME: " in front and the same class and exit code; call inside a catch block. When
// memory does not even suffice for that: the exception as it is, or std::bad_alloc.
std::exception_ptr named_exception(const Source& source, int64_t sample, const char* suffix = "") noexcept;

}  // namespace redline::data
