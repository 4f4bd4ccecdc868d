// Samples held in memory: for tests, for tables of tensors, and as the plain reference of what a source must do.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/source.h"

namespace redline::data {

class MemorySource : public Source {
 public:
  // `lengths` may be empty: then every sample has length 1.
  explicit MemorySource(std::vector<Sample> samples, std::vector<double> lengths = {},
                        std::vector<int32_t> locality = {});

  int64_t size() const override { return static_cast<int64_t>(samples_.size()); }
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  double length(int64_t index) const override { return lengths_.empty() ? 1.0 : lengths_[static_cast<size_t>(index)]; }
  std::string length_unit() const override { return "elements"; }
  std::string name(int64_t index) const override { return "row " + std::to_string(index); }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::vector<int32_t> locality_groups() const override { return locality_; }

 private:
  std::vector<Sample> samples_;
  std::vector<double> lengths_;
  std::vector<int32_t> locality_;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
