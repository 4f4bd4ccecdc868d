#include "data/workers/sample_chain.h"

#include <new>

#include "core/error.h"
#include "data/workers/collate.h"

namespace redline::data {

DrawKey draw_key(const EpochPlan& plan, uint64_t seed, uint32_t entry) {
  const uint64_t epoch = static_cast<uint64_t>(plan.epoch);
  const uint64_t repeat = static_cast<uint64_t>(plan.repeat(entry));
  return {seed, repeat == 0 ? epoch : mix_key(epoch, repeat)};
}

namespace {

template <class E>
std::exception_ptr with_sample(const std::string& sentence) {
  return std::make_exception_ptr(E(sentence));
}

std::exception_ptr with_prefix(const std::string& prefix) {
  try {
    throw;
  } catch (const ConfigError& error) {
    return with_sample<ConfigError>(prefix + error.what());
  } catch (const DataError& error) {
    return with_sample<DataError>(prefix + error.what());
  } catch (const DeviceError& error) {
    return with_sample<DeviceError>(prefix + error.what());
  } catch (const OutOfMemoryError& error) {
    return with_sample<OutOfMemoryError>(prefix + error.what());
  } catch (const DiskError& error) {
    return with_sample<DiskError>(prefix + error.what());
  } catch (const InternalError& error) {
    return with_sample<InternalError>(prefix + error.what());
  } catch (const std::bad_alloc&) {
    return with_sample<OutOfMemoryError>(
        prefix + "no memory left for it; lower num_workers, prefetch_factor or max_buffer_bytes.");
  } catch (const std::exception& error) {
    return with_sample<InternalError>(prefix + error.what());
  } catch (...) {
    return with_sample<InternalError>(prefix + "an exception of unknown type");
  }
}

}  // namespace

std::exception_ptr named_exception(const Source& source, int64_t sample, const char* suffix) noexcept {
  try {
    return with_prefix("Sample " + source.name(sample) + suffix + ": ");
  } catch (...) {
    return std::current_exception();
  }
}

SampleChain::SampleChain(std::shared_ptr<const Source> source,
                         std::vector<std::shared_ptr<const SampleTransform>> transforms,
                         std::shared_ptr<FeatureCache> cache, std::shared_ptr<const Planner> planner,
                         std::shared_ptr<MemoryBudget> budget)
    : source_(std::move(source)),
      transforms_(std::move(transforms)),
      cache_(std::move(cache)),
      planner_(std::move(planner)),
      budget_(std::move(budget)) {
  while (num_fixed_ < transforms_.size() && !transforms_[num_fixed_]->random()) ++num_fixed_;
}

std::string SampleChain::fingerprint(const std::vector<std::shared_ptr<const SampleTransform>>& transforms) {
  std::string text = "chain 1";
  for (const auto& transform : transforms) {
    if (transform->random()) break;
    text += "; " + transform->fingerprint();
  }
  return text;
}

std::optional<BadSample> SampleChain::transform(size_t begin, size_t end, const DrawKey& key, Sample& sample,
                                                measure::StageClock::Slot& slot) const {
  if (begin == end) return std::nullopt;
  const measure::StageScope scope(slot, measure::Stage::Transform);
  try {
    for (size_t t = begin; t < end; ++t) transforms_[t]->apply(sample, key);
    return std::nullopt;
  } catch (const DataError& error) {  // what transforms throw for a sample that cannot be used
    return BadSample{source_->name(sample.id), error.what()};
  }
}

// nullopt when `out` is good. A DataError of the source itself is no bad sample: it refuses the data (e.g. a path out
// of the root).
std::optional<BadSample> SampleChain::try_sample(int64_t sample, const DrawKey& key, Sample& out,
                                                 measure::StageClock::Slot& slot) const {
  try {
    uint64_t content = 0;
    std::optional<Sample> cached;
    if (cache_ != nullptr) {
      const measure::StageScope scope(slot, measure::Stage::Read);
      content = source_->content_key(sample);
      cached = cache_->find(content);
    }
    if (cached) {
      out = std::move(*cached);
      out.id = sample;
    } else {
      ReadResult result = source_->read(sample, slot);
      if (auto* bad = std::get_if<BadSample>(&result)) return std::move(*bad);
      out = std::move(std::get<Sample>(result));
      out.id = sample;
      if (auto bad = transform(0, num_fixed_, key, out, slot)) return bad;
      if (cache_ != nullptr) cache_->insert(content, out);
    }
    return transform(num_fixed_, transforms_.size(), key, out, slot);
  } catch (const MemoryBusy&) {
    throw;
  } catch (...) {
    std::rethrow_exception(named_exception(*source_, sample));
  }
}

std::optional<BadSample> SampleChain::try_within_budget(int64_t sample, const DrawKey& key, Sample& out,
                                                        measure::StageClock::Slot& slot) const {
  for (uint64_t lease = 0;;) {
    const ItemMemory memory(budget_.get(), lease);
    try {
      return try_sample(sample, key, out, slot);
    } catch (const MemoryBusy& busy) {  // begins again once there is room; draws depend on the sample alone
      lease = busy.lease;
      out = {};
    }
  }
}

void SampleChain::make_sample(const EpochPlan& plan, uint32_t entry, Sample& out, std::vector<BadEvent>& bad,
                              measure::StageClock::Slot& slot) const {
  const DrawKey key = draw_key(plan, planner_->settings().seed, entry);
  const int64_t planned = plan.sample(entry);
  int64_t sample = planned;
  for (int attempt = 0;; ++attempt) {
    auto wrong = try_within_budget(sample, key, out, slot);
    if (!wrong) break;
    bad.push_back({sample, std::move(wrong->name), std::move(wrong->reason)});
    if (attempt + 1 == kMaxSubstitutes) {
      throw DataError(std::to_string(kMaxSubstitutes) + " samples in a row could not be used, the last: " +
                      bad.back().name + ": " + bad.back().reason + " Check that the data is there and readable.");
    }
    sample = planner_->substitute(plan.epoch, planned, attempt);
  }
  slot.samples.store(slot.samples.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace redline::data
