#include "data/clip_bank.h"

#include <algorithm>

#include "data/audio/manifest_source.h"
#include "data/cache/feature_cache.h"
#include "data/dataset_config.h"

namespace redline::data {

namespace {
constexpr double kWholeClipSeconds = 120.0;  // longer ones are decoded window by window

ManifestOptions bank_options(const DatasetConfig& config) {
  ManifestOptions options;
  options.audio.target_rate = config.sample_rate;
  options.allow_absolute = config.allow_absolute.value();
  return options;
}

}  // namespace

struct ClipBank::Impl {
  ManifestSource source;
  int32_t sample_rate;
  std::unique_ptr<FeatureCache> cache;
};

ClipBank::ClipBank(const std::vector<std::filesystem::path>& manifests, const DatasetConfig& config,
                   int64_t cache_bytes)
    : impl_(new Impl{{manifests, bank_options(config)}, config.sample_rate, make_memory_cache(cache_bytes)}) {}

ClipBank::~ClipBank() = default;

int64_t ClipBank::size() const { return impl_->source.size(); }
double ClipBank::seconds(int64_t index) const { return impl_->source.length(index); }
uint64_t ClipBank::fingerprint() const { return impl_->source.fingerprint(); }

std::variant<std::vector<float>, BadSample> ClipBank::window(int64_t index, double begin_seconds, int64_t count) const {
  measure::StageClock::Slot slot;  // counts as part of the transform that asks
  const double whole = seconds(index);
  const bool by_window =
      whole > kWholeClipSeconds;  // by the clip alone, so that the result does not depend on what is cached
  std::optional<Sample> clip;
  if (!by_window) clip = impl_->cache->find(static_cast<uint64_t>(index));
  if (!clip) {
    const double seconds_wanted = static_cast<double>(count) / impl_->sample_rate;
    ReadResult read = by_window ? impl_->source.read_window(index, begin_seconds, seconds_wanted, slot)
                                : impl_->source.read(index, slot);
    if (auto* bad = std::get_if<BadSample>(&read)) return std::move(*bad);
    clip = std::move(std::get<Sample>(read));
    if (!by_window) impl_->cache->insert(static_cast<uint64_t>(index), *clip);
  }
  const auto samples = clip->find("audio")->as<float>();
  const int64_t first = by_window ? 0 : static_cast<int64_t>(begin_seconds * impl_->sample_rate);
  const int64_t begin = std::clamp<int64_t>(first, 0, static_cast<int64_t>(samples.size()));
  const int64_t end = std::min<int64_t>(begin + count, static_cast<int64_t>(samples.size()));
  return std::vector<float>(samples.begin() + begin, samples.begin() + end);
}

}  // namespace redline::data
