// What happens to one clip between decoding and collation: short clips made longer, and gain.
#pragma once

#include <string>

#include "data/transform.h"

namespace redline::data {

// Clips shorter than `min_seconds` are repeated and cut, or followed by zeros. An empty clip cannot be used.
class MinimumLength : public SampleTransform {
 public:
  MinimumLength(double min_seconds, int32_t sample_rate, bool repeat);
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return false; }

 private:
  int64_t min_samples_;
  bool repeat_;
};

// Multiplies by 10^(g/20) with g uniform in [min_db, max_db].
class RandomGain : public SampleTransform {
 public:
  RandomGain(double min_db, double max_db) : min_db_(min_db), max_db_(max_db) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  double min_db_, max_db_;
};

}  // namespace redline::data
