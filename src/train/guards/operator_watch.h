// Looks at every operator of this thread while it lives (RecordFunction): where the first value that is not finite
// appears, and how much operator time is spent in which type. Slow; for a diagnosis or for one step, never for a whole
// run.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace redline::train {

struct FoundNonFinite {
  bool found = false;
  std::string operator_name;  // "aten::addmm"
  int64_t index = 0;          // of the operator within the pass, from 1
  std::vector<int64_t> shape;
  std::vector<int64_t> rows;  // of the output's first dimension, when there are several
};

class NonFiniteWatch {
 public:
  NonFiniteWatch();
  ~NonFiniteWatch();
  // NaN where it first appears; an infinity only when it came before any NaN and was not put there on purpose (masks).
  FoundNonFinite result() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct OperatorTime {
  std::string name;
  torch::ScalarType dtype = torch::kFloat32;  // of the first floating output (or input)
  int64_t calls = 0;
  double self_seconds = 0;
  double flops = 0;  // of matrix products; 0 where they are not known from the shapes
};
// "autograd::engine::evaluate_function: MmBackward0" as a person says it: "MmBackward0".
std::string operator_words(const std::string& name);

class OperatorTimer {
 public:
  OperatorTimer();
  ~OperatorTimer();
  std::vector<OperatorTime> times() const;  // slowest first

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Of the operators whose result is of `dtype`, added.
double dtype_seconds(const std::vector<OperatorTime>& times, torch::ScalarType dtype);

}  // namespace redline::train
