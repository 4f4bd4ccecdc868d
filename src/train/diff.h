// The comparison behind `redline diff`: where do two runs part? First by the recorded losses, bit for bit, then by the
// tensors of the newest generation that both have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "train/files/safetensors.h"

namespace redline::train {

struct StepDifference {
  int64_t step = 0;
  std::string what;  // "loss", "learning_rate", "grad_norm", "samples", "only in A", "only in B"
  double a = 0, b = 0;
};

struct TensorDifference {
  std::string part, name;           // "model", "encoder.weight"
  std::string what;                 // "values", "shape [2] and [3]", "type F32 and F16", "only in A", "only in B"
  int64_t elements = 0, total = 0;  // that differ, of
  double largest = 0;               // absolute difference; NaN counts as infinite unless in both
};

struct DiffResult {
  int64_t steps_compared = 0;
  std::optional<StepDifference> first_step;
  int64_t steps_different = 0;        // of those compared: in both runs
  std::optional<int64_t> generation;  // the step of the generations compared
  int64_t tensors_compared = 0;
  std::vector<TensorDifference> tensors;  // in the order of the file
  bool state_different = false;           // state.json
  std::vector<std::string> config;        // "trainer.precision: 32-true | bf16-mixed"

  bool equal() const { return !first_step && tensors.empty() && !state_different; }
};

// Each side a run directory, a generation or a .safetensors file. Steps and configs are compared when both are runs.
DiffResult diff_paths(const std::filesystem::path& a, const std::filesystem::path& b);

// The parts, on values in memory. Rows are compared by step number; a later row of the same step wins. `different`
// counts among the compared ones; a step of one side only may still be the first difference.
std::optional<StepDifference> first_step_difference(const std::vector<measure::StepRow>& a,
                                                    const std::vector<measure::StepRow>& b, int64_t* compared = nullptr,
                                                    int64_t* different = nullptr);
// "trainer.precision: 32-true | bf16-mixed" for every key of two resolved configs whose values differ.
std::vector<std::string> config_differences(const std::string& a, const std::string& b);
void diff_tensors(const std::string& part, const NamedTensors& a, const NamedTensors& b, DiffResult& result);

}  // namespace redline::train
