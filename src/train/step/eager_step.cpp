#include "train/step/eager_step.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "device/autocast.h"
#include "measure/faults.h"
#include "train/step/batches.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;

double host_number(const torch::Tensor& scalar) {
  return scalar.scalar_type() == torch::kFloat32 ? static_cast<double>(*scalar.const_data_ptr<float>())
                                                 : scalar.item<double>();
}

void check_loss(const task::Loss& loss) {
  if (!loss.value.defined() || !loss.weight.defined() || loss.value.numel() != 1 || loss.weight.numel() != 1)
    throw ConfigError("The task's loss() must return a scalar value and a scalar weight.");
  if (!loss.value.is_floating_point()) throw ConfigError("The task's loss() must return a floating-point value.");
}

}  // namespace

EagerStep::EagerStep(task::Task& task, torch::Device device, measure::StepClock& clock, Agreement& agreement,
                     GradientSync* sync)
    : task_(task), device_(device), clock_(clock), agreement_(agreement), sync_(sync) {}

void EagerStep::begin(const StepPass& pass) {
  clear();
  pass_ = pass;
  if (sync_ != nullptr) sync_->begin();
}

double EagerStep::weight_so_far() const { return weight_sum_.defined() ? weight_sum_.item<double>() : verdict_.weight; }

// On other devices it is a tensor until finish().
double EagerStep::known_reference() const {
  return reference_ == 0.0 && reference_tensor_.defined() ? reference_tensor_.item<double>() : reference_;
}

void EagerStep::abandon() {
  clear();
  if (sync_ != nullptr) sync_->abandon();
}

void EagerStep::clear() {
  verdict_ = StepVerdict();
  reference_ = 0.0;
  loss_sum_ = weight_sum_ = reference_tensor_ = torch::Tensor();
  metric_sums_.clear();
  outputs_.clear();
}

void EagerStep::backward(const torch::Tensor& value, const torch::Tensor& seed) {
  if (!value.requires_grad())
    throw ConfigError(
        "The task's loss needs no gradient: no trainable parameter takes part in it. Check that the model is not "
        "frozen "
        "and that loss() does not detach its result.");
  const PhaseScope scope(clock_, Phase::Backward);
  const auto run = [&] { torch::autograd::backward({value}, {seed}); };
  if (sync_ != nullptr && last_)
    sync_->last_backward(value, run);
  else
    run();
}

void EagerStep::add_on_cpu(const task::Loss& loss) {
  const double weight = host_number(loss.weight);
  if (weight < 0.0)
    throw ConfigError(
        fmt::format("The task's loss has the weight {}: weights count items, so they are at least 0.", weight));
  if (reference_ == 0.0) reference_ = agreement_.reference_weight(weight, pass_.expected_pieces);
  if (weight == 0.0 && agreement_.alone()) return;
  const double seed = pass_.loss_scale * (weight / reference_);
  if (weight != 0.0) {
    double value = host_number(loss.value);
    if (measure::faults::take("nan.loss")) value = std::nan("");
    verdict_.value_sum += value * weight;
    verdict_.weight += weight;
    for (const auto& [name, metric] : loss.metrics) verdict_.metric_sums[name] += host_number(metric) * weight;
  }
  backward(loss.value, torch::full({}, seed, loss.value.options().requires_grad(false)).view(loss.value.sizes()));
}

// Nothing here waits for the device; finish() reads the sums once.
void EagerStep::add_on_device(const task::Loss& loss) {
  const torch::Tensor value = loss.value.detach().to(torch::kFloat32).reshape({}),
                      weight = loss.weight.detach().to(torch::kFloat32).reshape({});
  if (!reference_tensor_.defined()) {
    reference_tensor_ = agreement_.reference_weight(weight, pass_.expected_pieces);
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

task::Loss EagerStep::forward(const task::Batch& batch, bool counts) {
  task::Context context(pass_.seed, pass_.step, /*training=*/true, batch.sample_ids);
  context.device = device_;
  context.want_outputs(want_outputs_);
  context.counts = counts;
  if (sync_ != nullptr) context.collective = sync_->begin_piece(counts);
  task::Loss loss;
  {
    const PhaseScope scope(clock_, Phase::Forward);
    const device::AutocastScope precision(device::kind_of(device_), pass_.precision);
    loss = loss_of(batch, context);
    check_loss(loss);
  }
  if (sync_ != nullptr) sync_->end_forward();
  auto& updates = context.batch_norm_updates();
  // Statistics of a stand-in are of no one; where they span ranks they are the others', and apply here too.
  if (!counts && context.collective == nullptr)
    for (task::BatchNormUpdate& update : updates) {
      update.momentum = 0.0;
      update.num_batches_tracked = torch::Tensor();
    }
  verdict_.batch_norm.insert(verdict_.batch_norm.end(), std::make_move_iterator(updates.begin()),
                             std::make_move_iterator(updates.end()));
  if (want_outputs_ && outputs_.empty()) outputs_ = std::move(context.outputs());
  return loss;
}

// Others wait in a reducer or in a synchronised BatchNorm for a rank that has no samples in this turn: it runs one
// sample with the weight 0.
void EagerStep::take_part() {
  if (stand_in_.size() == 0) stand_in_ = task_.worst_case_batch(1);
  if (stand_in_.size() == 0)
    throw ConfigError(
        "A rank got no samples in its first turn, and this task has no batch to stand in; give each rank more data, or "
        "drop_last: true.");
  task::Loss loss = forward(stand_in_, /*counts=*/false);
  loss.weight = torch::zeros_like(loss.weight);
  if (device_.is_cpu())
    add_on_cpu(loss);
  else
    add_on_device(loss);
}

// The others are on their way through this piece: they meet in its layers, agree on the reference after the first
// forward, and meet in the layers again and in the gradients.
void EagerStep::skip(bool last) {
  const auto agree_on_reference = [&] {
    if (reference_ != 0.0 || reference_tensor_.defined()) return;
    if (device_.is_cpu())
      reference_ = agreement_.reference_weight(0.0, pass_.expected_pieces);
    else
      reference_tensor_ = agreement_.reference_weight(torch::zeros({}, device_), pass_.expected_pieces);
  };
  if (sync_ != nullptr)
    sync_->keep_company(last, agree_on_reference);
  else
    agree_on_reference();
}

void EagerStep::add(const task::Batch& piece, bool last) {
  last_ = last;
  if (piece.size() == 0) {
    if (!agreement_.alone()) take_part();
    return;
  }
  const task::Loss loss = forward(piece, /*counts=*/true);
  if (device_.is_cpu())
    add_on_cpu(loss);
  else
    add_on_device(loss);
  // Not one that is not finite: zero times that is not zero. (Read on the CPU alone: elsewhere it would wait.)
  if (!agreement_.alone() && (!device_.is_cpu() || std::isfinite(host_number(loss.value))))
    stand_in_ = narrow_batch(piece, task_.schema(), 0, 1);
  verdict_.samples += piece.size();
  verdict_.items += piece.items;
  verdict_.padded_items += piece.padded_items;
  ++verdict_.pieces;
}

StepVerdict EagerStep::finish() {
  if (reference_tensor_.defined()) {
    std::vector<torch::Tensor> scalars = {loss_sum_, weight_sum_, reference_tensor_};
    for (const auto& [name, sum] : metric_sums_) scalars.push_back(sum);
    const torch::Tensor host = torch::stack(scalars).to(torch::kCPU, torch::kFloat64);
    const double* values = host.const_data_ptr<double>();
    verdict_.value_sum = values[0];
    verdict_.weight = values[1];
    reference_ = values[2];
    size_t next = 3;
    for (const auto& [name, sum] : metric_sums_) verdict_.metric_sums[name] = values[next++];
  }
  return std::move(verdict_);
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
