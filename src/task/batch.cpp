#include "task/batch.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/strings.h"

namespace redline::task {

namespace {

std::string dtype_text(torch::ScalarType dtype) { return torch::toString(dtype); }

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> parts;
  for (int64_t extent : shape) parts.push_back(extent == -1 ? "any" : extent == -2 ? "B" : std::to_string(extent));
  return fmt::format("[{}]", join(parts, ", "));
}

std::string names_text(const Batch& batch) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : batch.tensors) names.push_back(fmt::format("'{}'", name));
  return names.empty() ? "no tensors" : join(names, ", ");
}

// Throws when `found` does not fit; learns the batch dimension from the first tensor that has one.
void check_tensor(const TensorSpec& spec, const torch::Tensor& found, int64_t& batch_size) {
  const auto sizes = found.sizes().vec();
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("The batch's tensor '{}' should be {} {}{}, but is {} {}: {}.", spec.name,
                                dtype_text(spec.dtype), shape_text(spec.shape),
                                batch_size >= 0 ? fmt::format(" with B = {}", batch_size) : "",
                                dtype_text(found.scalar_type()), shape_text(sizes), why));
  };
  if (found.scalar_type() != spec.dtype) refuse("the type differs");
  if (sizes.size() != spec.shape.size()) refuse("the number of dimensions differs");
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (spec.shape[i] == -1) continue;
    if (spec.shape[i] == -2) {
      if (batch_size < 0) batch_size = sizes[i];
      if (sizes[i] != batch_size) refuse(fmt::format("dimension {} is not the batch's size", i));
    } else if (sizes[i] != spec.shape[i]) {
      refuse(fmt::format("dimension {} differs", i));
    }
  }
}

}  // namespace

const torch::Tensor& Batch::at(const std::string& name) const {
  const auto found = tensors.find(name);
  if (found == tensors.end())
    throw DataError(fmt::format("The batch has no tensor '{}'; it has {}.", name, names_text(*this)));
  return found->second;
}

void check_batch(const BatchSchema& schema, const Batch& batch) {
  int64_t batch_size = batch.sample_ids.empty() ? -1 : batch.size();
  for (const TensorSpec& spec : schema.tensors) {
    const auto found = batch.tensors.find(spec.name);
    if (found == batch.tensors.end()) {
      if (spec.optional) continue;
      throw DataError(fmt::format("The batch lacks the tensor '{}' ({} {}{}{}); it has {}.", spec.name,
                                  dtype_text(spec.dtype), shape_text(spec.shape), spec.sentence.empty() ? "" : "; ",
                                  spec.sentence, names_text(batch)));
    }
    check_tensor(spec, found->second, batch_size);
  }
}

}  // namespace redline::task
