#include "train/loop/step_compute.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "device/autocast.h"
#include "measure/faults.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;

double host_number(const torch::Tensor& scalar) {
  return scalar.scalar_type() == torch::kFloat32 ? static_cast<double>(*scalar.const_data_ptr<float>())
                                                 : scalar.item<double>();
}

// A tensor of a piece with its first element not a number; the caller's batch stays as it is.
task::Batch poisoned(const task::Batch& batch) {
  task::Batch copy = batch;
  for (auto& [name, tensor] : copy.tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    tensor = tensor.clone();
    tensor.view(-1)[0] = std::nan("");
    break;
  }
  return copy;
}

}  // namespace

StepCompute::StepCompute(task::Task& task, torch::Device device, measure::StepClock& clock)
    : task_(task), device_(device), clock_(clock) {}

void StepCompute::begin(const StepPass& pass) {
  abandon();
  pass_ = pass;
}

void StepCompute::abandon() {
  result_ = StepResult();
  reference_ = 0.0;
  loss_sum_ = weight_sum_ = reference_tensor_ = torch::Tensor();
  metric_sums_.clear();
  outputs_.clear();
  poisoned_ = task::Batch();
}

void StepCompute::check_loss(const task::Loss& loss) const {
  if (!loss.value.defined() || !loss.weight.defined() || loss.value.numel() != 1 || loss.weight.numel() != 1)
    throw ConfigError("The task's loss() must return a scalar value and a scalar weight.");
  if (!loss.value.is_floating_point()) throw ConfigError("The task's loss() must return a floating-point value.");
}

void StepCompute::backward(const torch::Tensor& value, const torch::Tensor& seed) {
  if (!value.requires_grad())
    throw ConfigError(
        "The task's loss needs no gradient: no trainable parameter takes part in it. Check that the model is not "
        "frozen "
        "and that loss() does not detach its result.");
  const PhaseScope scope(clock_, Phase::Backward);
  torch::autograd::backward({value}, {seed});
}

void StepCompute::add_on_cpu(const task::Loss& loss) {
  const double weight = host_number(loss.weight);
  if (weight == 0.0) return;
  if (weight < 0.0)
    throw ConfigError(
        fmt::format("The task's loss has the weight {}: weights count items, so they are at least 0.", weight));
  double value = host_number(loss.value);
  if (measure::faults::take("nan.loss")) value = std::nan("");
  if (reference_ == 0.0)
    reference_ = pass_.expected_pieces == 1
                     ? weight
                     : std::exp2(std::ceil(std::log2(weight * static_cast<double>(pass_.expected_pieces))));
  const double seed = pass_.loss_scale * (weight / reference_);
  result_.loss += value * weight;
  result_.weight += weight;
  for (const auto& [name, metric] : loss.metrics) result_.metrics[name] += host_number(metric) * weight;
  backward(loss.value, torch::full({}, seed, loss.value.options().requires_grad(false)).view(loss.value.sizes()));
}

// Nothing here waits for the device; finish() reads the sums once.
void StepCompute::add_on_device(const task::Loss& loss) {
  const torch::Tensor value = loss.value.detach().to(torch::kFloat32).reshape({}),
                      weight = loss.weight.detach().to(torch::kFloat32).reshape({});
  if (!reference_tensor_.defined()) {
    reference_tensor_ = torch::clamp_min(weight * static_cast<double>(pass_.expected_pieces), 1e-30);
    loss_sum_ = torch::zeros_like(weight);
    weight_sum_ = torch::zeros_like(weight);
  }
  loss_sum_ = loss_sum_ + torch::where(weight > 0, value * weight, torch::zeros_like(value));
  weight_sum_ = weight_sum_ + weight;
  for (const auto& [name, metric] : loss.metrics) {
    const torch::Tensor term = metric.detach().to(torch::kFloat32).reshape({}) * weight;
    torch::Tensor& sum = metric_sums_[name];
    sum = sum.defined() ? sum + term : term;
  }
  backward(loss.value,
           (weight / reference_tensor_ * pass_.loss_scale).to(loss.value.scalar_type()).view(loss.value.sizes()));
}

void StepCompute::add(const task::Batch& piece) {
  const bool poison = measure::faults::take("nan.input");
  if (poison) poisoned_ = poisoned(piece);
  const task::Batch& batch = poison ? poisoned_ : piece;
  task::Context context(pass_.seed, pass_.step, /*training=*/true, batch.sample_ids);
  context.device = device_;
  context.want_outputs(want_outputs_);
  task::Loss loss;
  {
    const PhaseScope scope(clock_, Phase::Forward);
    const device::AutocastScope precision(device::kind_of(device_), pass_.precision);
    loss = task_.loss(batch, context);
    check_loss(loss);
  }
  if (device_.is_cpu())
    add_on_cpu(loss);
  else
    add_on_device(loss);
  auto& updates = context.batch_norm_updates();
  result_.batch_norm.insert(result_.batch_norm.end(), std::make_move_iterator(updates.begin()),
                            std::make_move_iterator(updates.end()));
  if (want_outputs_ && outputs_.empty()) outputs_ = std::move(context.outputs());
  result_.samples += batch.size();
  result_.items += batch.items;
  result_.padded_items += batch.padded_items;
  ++result_.pieces;
}

StepResult StepCompute::finish() {
  if (reference_tensor_.defined()) {
    std::vector<torch::Tensor> scalars = {loss_sum_, weight_sum_, reference_tensor_};
    for (const auto& [name, sum] : metric_sums_) scalars.push_back(sum);
    const torch::Tensor host = torch::stack(scalars).to(torch::kCPU, torch::kFloat64);
    const double* values = host.const_data_ptr<double>();
    result_.loss = values[0];
    result_.weight = values[1];
    reference_ = values[2];
    size_t next = 3;
    for (const auto& [name, sum] : metric_sums_) result_.metrics[name] = values[next++];
  }
  if (result_.weight > 0.0) {
    result_.loss /= result_.weight;
    for (auto& [name, sum] : result_.metrics) sum /= result_.weight;
    result_.divisor = pass_.loss_scale * (result_.weight / reference_);
  } else if (result_.weight != 0.0) {
    result_.loss = std::nan("");  // a weight that is not a number
  }
  return std::move(result_);
}

void apply_batch_norm(const std::vector<task::BatchNormUpdate>& updates) {
  const torch::NoGradGuard no_grad;
  for (const task::BatchNormUpdate& update : updates) {
    torch::Tensor mean = update.running_mean, variance = update.running_var, count = update.num_batches_tracked;
    mean.lerp_(update.batch_mean.to(mean.options()), update.momentum);
    variance.lerp_(update.batch_var_unbiased.to(variance.options()), update.momentum);
    if (count.defined()) count.add_(1);
  }
}

}  // namespace redline::train
