#include "train/guards/non_finite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "device/autocast.h"
#include "train/guards/operator_watch.h"
#include "train/optim/gradients.h"

namespace redline::train {

namespace {

std::vector<int64_t> ids_of_rows(const task::Batch& batch, const std::vector<int64_t>& rows, int64_t extent) {
  // Rows may be k per sample (cameras, windows).
  if (rows.empty() || batch.size() == 0 || extent % batch.size() != 0) return batch.sample_ids;
  std::vector<int64_t> ids;
  for (int64_t row : rows) {
    const int64_t id = batch.sample_ids[static_cast<size_t>(row / (extent / batch.size()))];
    if (ids.empty() || ids.back() != id) ids.push_back(id);
  }
  return ids;
}

std::optional<NonFiniteReport> bad_weight(const Optimizer& optimizer) {
  std::vector<torch::Tensor> weights;
  for (const OptimizedParameter& p : optimizer.parameters()) weights.push_back(p.value.detach());
  const auto bad = first_non_finite(weights);
  if (!bad) return std::nullopt;
  return NonFiniteReport{fmt::format("weight {}", optimizer.parameters()[*bad].name), {}};
}

std::optional<NonFiniteReport> bad_input(const task::Batch& batch) {
  for (const auto& [name, tensor] : batch.tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    const torch::Tensor bad = torch::isfinite(tensor).logical_not();
    if (!bad.any().item<bool>()) continue;
    std::vector<int64_t> rows;
    if (tensor.dim() > 0) {
      const torch::Tensor per_row = bad.reshape({bad.size(0), -1}).any(1).cpu();
      for (int64_t i = 0; i < per_row.size(0); ++i)
        if (per_row[i].item<bool>()) rows.push_back(i);
    }
    return NonFiniteReport{fmt::format("batch tensor {}", name),
                           ids_of_rows(batch, rows, tensor.dim() > 0 ? tensor.size(0) : 0)};
  }
  return std::nullopt;
}

std::optional<NonFiniteReport> bad_operator(task::Task& task, torch::Device device, const task::Batch& batch,
                                            const StepPass& pass) {
  task::Context context(pass.seed, pass.step, /*training=*/true, batch.sample_ids);
  context.device = device;
  FoundNonFinite found;
  {
    const NonFiniteWatch watch;
    const device::AutocastScope precision(device::kind_of(device), pass.precision);
    const torch::NoGradGuard no_grad;
    task.loss(batch, context);
    found = watch.result();
  }
  if (!found.found) return std::nullopt;
  return NonFiniteReport{fmt::format("output of {} [{}] (operator {} of the forward pass)", found.operator_name,
                                     fmt::join(found.shape, ", "), found.index),
                         ids_of_rows(batch, found.rows, found.shape.empty() ? 0 : found.shape[0])};
}

}  // namespace

NonFiniteReport explain_non_finite(task::Task& task, const Optimizer& optimizer, torch::Device device,
                                   const NonFiniteEvidence& evidence) {
  std::vector<int64_t> all;
  for (const task::Batch* batch : evidence.batches)
    all.insert(all.end(), batch->sample_ids.begin(), batch->sample_ids.end());
  if (!std::isfinite(evidence.pass.loss_scale)) return {"loss scale", all};
  if (auto report = bad_weight(optimizer)) return *report;
  for (const task::Batch* batch : evidence.batches)
    if (auto report = bad_input(*batch)) return *report;
  if (!evidence.loss_is_finite) {
    for (const task::Batch* batch : evidence.batches)
      if (auto report = bad_operator(task, device, *batch, evidence.pass)) return *report;
    return {"loss", all};
  }
  return {evidence.bad_gradient.empty() ? "gradient" : fmt::format("gradient of {}", evidence.bad_gradient), all};
}

}  // namespace redline::train
