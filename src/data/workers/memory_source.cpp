#include "data/memory_source.h"

#include "core/check.h"
#include "core/hash.h"

namespace redline::data {

MemorySource::MemorySource(std::vector<Sample> samples, std::vector<double> lengths, std::vector<int32_t> locality)
    : samples_(std::move(samples)), lengths_(std::move(lengths)), locality_(std::move(locality)) {
  REDLINE_CHECK(lengths_.empty() || lengths_.size() == samples_.size(), "a length per sample or none");
  REDLINE_CHECK(locality_.empty() || locality_.size() == samples_.size(), "a locality group per sample or none");
  uint64_t hash = samples_.size();
  for (const Sample& sample : samples_) {
    for (const auto& [name, array] : sample.fields) {
      hash = hash64(name, hash);
      hash = hash64(std::span(static_cast<const std::byte*>(array.data()), array.num_bytes()), hash);
    }
  }
  fingerprint_ = hash;
}

ReadResult MemorySource::read(int64_t index, measure::StageClock::Slot& slot) const {
  const measure::StageScope scope(slot, measure::Stage::Read);
  Sample sample = samples_[static_cast<size_t>(index)];
  sample.id = index;
  return sample;
}

}  // namespace redline::data
