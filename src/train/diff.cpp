// See diff.h. "Equal" means equal bits: -0.0 and 0.0 differ, a NaN equals itself.
#include "train/diff.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "config/job.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/store.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

std::map<int64_t, measure::StepRow> rows_by_step(const std::vector<measure::StepRow>& rows) {
  std::map<int64_t, measure::StepRow> by_step;
  for (const measure::StepRow& row : rows) by_step[row.step] = row;
  return by_step;
}

bool same_bits(double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); }

std::optional<StepDifference> row_difference(const measure::StepRow& a, const measure::StepRow& b) {
  if (!same_bits(a.loss, b.loss)) return StepDifference{a.step, "loss", a.loss, b.loss};
  if (!same_bits(a.learning_rate, b.learning_rate))
    return StepDifference{a.step, "learning_rate", a.learning_rate, b.learning_rate};
  if (!same_bits(a.grad_norm, b.grad_norm)) return StepDifference{a.step, "grad_norm", a.grad_norm, b.grad_norm};
  if (a.samples != b.samples)
    return StepDifference{a.step, "samples", static_cast<double>(a.samples), static_cast<double>(b.samples)};
  return std::nullopt;
}

template <class T>
double largest_whole_gap(const torch::Tensor& a, const torch::Tensor& b) {
  const auto* x = static_cast<const T*>(a.const_data_ptr());
  const auto* y = static_cast<const T*>(b.const_data_ptr());
  uint64_t largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    largest = std::max(largest, x[i] > y[i] ? static_cast<uint64_t>(x[i]) - static_cast<uint64_t>(y[i])
                                            : static_cast<uint64_t>(y[i]) - static_cast<uint64_t>(x[i]));
  return static_cast<double>(largest);
}

// Of the elements whose bits differ. 64-bit integers are subtracted as such: as doubles, neighbours would be equal.
double largest_gap(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& differs) {
  if (a.scalar_type() == torch::kInt64) return largest_whole_gap<int64_t>(a, b);
  if (a.scalar_type() == torch::kUInt64) return largest_whole_gap<uint64_t>(a, b);
  const torch::Tensor gap = a.is_complex() ? (a.to(torch::kComplexDouble) - b.to(torch::kComplexDouble)).abs()
                                           : (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs();
  return torch::nan_to_num(gap.masked_fill(differs.logical_not(), 0.0), INFINITY).max().item<double>();
}

std::optional<TensorDifference> tensor_difference(const std::string& part, const std::string& name,
                                                  const torch::Tensor& a, const torch::Tensor& b) {
  TensorDifference difference{part, name, {}, 0, a.numel(), 0};
  if (a.scalar_type() != b.scalar_type()) {
    difference.what = "type ";
    difference.what.append(stored_type_name(stored_type(a.scalar_type())))
        .append(" and ")
        .append(stored_type_name(stored_type(b.scalar_type())));
    return difference;
  }
  if (a.sizes() != b.sizes()) {
    difference.what = "shape " + shape_text(a) + " and " + shape_text(b);
    return difference;
  }
  if (a.numel() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return std::nullopt;
  const auto bytes = [](const torch::Tensor& t) {  // flat first: a tensor without dimensions cannot be viewed as bytes
    return t.reshape({-1}).view(torch::kUInt8).reshape({-1, t.element_size()});
  };
  const torch::Tensor differs = bytes(a).ne(bytes(b)).any(1);
  difference.elements = differs.sum().item<int64_t>();
  difference.largest = largest_gap(a.reshape({-1}), b.reshape({-1}), differs);
  difference.what = "values";
  return difference;
}

bool is_run(const fs::path& path) {
  std::error_code code;
  return fs::exists(path / "steps.bin", code) || fs::exists(path / "config.resolved.yaml", code);
}

void flatten_config(const config::Node& node, const std::string& path, std::map<std::string, std::string>& out) {
  if (node.is_map()) {
    for (const auto& [key, child] : node.entries()) flatten_config(child, path.empty() ? key : path + "." + key, out);
  } else if (node.is_list()) {
    std::string text = "[";
    for (const config::Node& item : node.items()) {
      if (text.size() > 1) text += ", ";
      text += item.is_scalar() ? item.text() : "…";
    }
    out[path] = text + "]";
  } else {
    out[path] = node.is_null() ? "null" : node.text();
  }
}

// The generations to compare: the newest step that both runs have; any other kind of path is loaded as it is.
std::optional<std::pair<LoadedCheckpoint, LoadedCheckpoint>> states_to_compare(const fs::path& a, const fs::path& b) {
  if (!is_run(a) || !is_run(b)) return std::make_pair(CheckpointStore::load(a), CheckpointStore::load(b));
  std::set<std::string> names_b;
  for (const fs::path& path : generation_paths(b / "checkpoints")) names_b.insert(path.filename().string());
  const std::vector<fs::path> paths_a = generation_paths(a / "checkpoints");
  for (size_t i = paths_a.size(); i-- > 0;) {
    const fs::path name = paths_a[i].filename();
    if (names_b.contains(name.string())) {
      return std::make_pair(CheckpointStore::load(paths_a[i]), CheckpointStore::load(b / "checkpoints" / name));
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> config_differences(const std::string& a, const std::string& b) {
  std::map<std::string, std::string> flat_a, flat_b;
  if (a.empty() || b.empty()) return {};
  flatten_config(config::read_yaml_text(a, "A/config.resolved.yaml"), "", flat_a);
  flatten_config(config::read_yaml_text(b, "B/config.resolved.yaml"), "", flat_b);
  std::set<std::string> keys;
  for (const auto& [key, value] : flat_a) keys.insert(key);
  for (const auto& [key, value] : flat_b) keys.insert(key);
  std::vector<std::string> lines;
  for (const std::string& key : keys) {
    const std::string left = flat_a.contains(key) ? flat_a[key] : "(absent)",
                      right = flat_b.contains(key) ? flat_b[key] : "(absent)";
    if (left != right) lines.push_back(printable(key + ": " + left + " | " + right));
  }
  return lines;
}

std::optional<StepDifference> first_step_difference(const std::vector<measure::StepRow>& a,
                                                    const std::vector<measure::StepRow>& b, int64_t* compared,
                                                    int64_t* different) {
  const auto rows_a = rows_by_step(a), rows_b = rows_by_step(b);
  std::set<int64_t> steps;
  for (const auto& [step, row] : rows_a) steps.insert(step);
  for (const auto& [step, row] : rows_b) steps.insert(step);
  std::optional<StepDifference> first;
  for (int64_t step : steps) {
    const auto in_a = rows_a.find(step), in_b = rows_b.find(step);
    std::optional<StepDifference> found;
    if (in_a == rows_a.end()) {
      found = StepDifference{step, "only in B", NAN, in_b->second.loss};
    } else if (in_b == rows_b.end()) {
      found = StepDifference{step, "only in A", in_a->second.loss, NAN};
    } else {
      found = row_difference(in_a->second, in_b->second);
      if (compared != nullptr) ++*compared;
    }
    if (!found) continue;
    if (!first) first = found;
    if (different != nullptr && in_a != rows_a.end() && in_b != rows_b.end()) ++*different;
  }
  return first;
}

void diff_tensors(const std::string& part, const NamedTensors& a, const NamedTensors& b, DiffResult& result) {
  std::map<std::string, torch::Tensor> in_b(b.begin(), b.end());
  for (const auto& [name, tensor] : a) {
    const auto found = in_b.find(name);
    if (found == in_b.end()) {
      result.tensors.push_back({part, name, "only in A", 0, tensor.numel(), 0});
      continue;
    }
    ++result.tensors_compared;
    if (auto difference = tensor_difference(part, name, tensor, found->second))
      result.tensors.push_back(std::move(*difference));
    in_b.erase(found);
  }
  for (const auto& [name, tensor] : in_b) result.tensors.push_back({part, name, "only in B", 0, tensor.numel(), 0});
}

DiffResult diff_paths(const fs::path& a, const fs::path& b) {
  DiffResult result;
  if (is_run(a) && is_run(b)) {
    const measure::RunRecord run_a = measure::read_run(a), run_b = measure::read_run(b);
    result.first_step =
        first_step_difference(run_a.steps, run_b.steps, &result.steps_compared, &result.steps_different);
    result.config = config_differences(run_a.config_yaml, run_b.config_yaml);
  }
  if (auto states = states_to_compare(a, b)) {
    const auto& [state_a, state_b] = *states;
    if (state_a.info.step != 0 && state_a.info.step == state_b.info.step) result.generation = state_a.info.step;
    diff_tensors("model", state_a.state.model, state_b.state.model, result);
    diff_tensors("optimizer", state_a.state.optimizer, state_b.state.optimizer, result);
    result.state_different = state_a.state.state_json != state_b.state.state_json;
  }
  return result;
}

}  // namespace redline::train
