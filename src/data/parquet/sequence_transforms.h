// Sequences: cut to a length. Padding is collation's (data/workers/collate.h).
#pragma once

#include <string>
#include <vector>

#include "data/transform.h"

namespace redline::data {

// Cuts every field of at least one dimension to its first `max_length` elements; shares the memory.
class Truncate : public SampleTransform {
 public:
  explicit Truncate(int64_t max_length) : max_length_(max_length) {}
  void apply(Sample& sample, const DrawKey&) const override {
    for (auto& field : sample.fields) {
      const Array& array = field.second;
      if (array.shape().empty() || array.shape()[0] <= max_length_) continue;
      Shape shape = array.shape();
      shape[0] = max_length_;
      field.second = Array::wrap(array.dtype(), std::move(shape), array.memory());
    }
  }
  std::string fingerprint() const override { return "truncate " + std::to_string(max_length_); }
  bool random() const override { return false; }

 private:
  int64_t max_length_;
};

}  // namespace redline::data
