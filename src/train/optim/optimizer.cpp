#include "train/optim/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <fmt/format.h>

#include "core/check.h"
#include "core/error.h"
#include "train/files/safetensors.h"
#include "train/optim/gradients.h"
#include "train/optim/other_steps.h"

namespace redline::train {

namespace {

bool is_sgd(const OptimConfig& c) { return c.name == "sgd"; }
bool is_factored(const OptimConfig& c) { return c.name == "adafactor"; }
bool keeps_first(const OptimConfig& c) { return !is_sgd(c) || c.momentum != 0.0; }
bool keeps_second(const OptimConfig& c) { return c.is_adam() || is_factored(c); }
bool keeps_third(const OptimConfig& c) { return c.is_adam() && c.amsgrad; }

const char* first_name(const OptimConfig& c) {
  return is_sgd(c) ? "momentum_buffer." : is_factored(c) ? "row_var." : "exp_avg.";
}
const char* second_name(const OptimConfig& c) { return is_factored(c) ? "col_var." : "exp_avg_sq."; }

// In the parameter's own memory order, or what Adafactor keeps of it.
torch::Tensor new_state(const OptimConfig& c, const torch::Tensor& value, bool second) {
  if (!is_factored(c)) return torch::zeros_like(value, at::MemoryFormat::Preserve);
  const auto [rows, columns] = factored_shapes(value);
  return torch::zeros(second ? columns : rows, value.options().requires_grad(false));
}

}  // namespace

void Optimizer::Lists::clear() {
  for (auto* list : {&params, &grads, &first, &second, &third}) list->clear();
  counts.clear();
}

Optimizer::Optimizer(const OptimConfig& config, std::vector<OptimizedParameter> parameters)
    : config_(config), parameters_(std::move(parameters)), steps_(parameters_.size(), 0) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const OptimizedParameter& p = parameters_[i];
    if (keeps_first(config_)) first_.push_back(new_state(config_, p.value, false));
    if (keeps_second(config_)) second_.push_back(new_state(config_, p.value, true));
    if (keeps_third(config_)) third_.push_back(torch::zeros_like(p.value, at::MemoryFormat::Preserve));
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.lr_scale == p.lr_scale && g.weight_decay == p.weight_decay && g.name == p.group &&
             parameters_[g.members[0]].value.device() == p.value.device() &&
             parameters_[g.members[0]].value.scalar_type() == p.value.scalar_type();
    });
    if (group == groups_.end()) group = groups_.insert(groups_.end(), Group{p.lr_scale, p.weight_decay, p.group, {}});
    group->members.push_back(i);
  }
  if (!parameters_.empty())
    divisor_ = torch::ones({}, parameters_[0].value.options().dtype(torch::kFloat32).requires_grad(false));
}

torch::Tensor Optimizer::step_tensor(int64_t count) {
  for (auto& [known, tensor] : step_tensors_)
    if (known == count) return tensor;
  // A slot from an earlier step is free again once its count is in the past of every parameter.
  for (auto& [known, tensor] : step_tensors_) {
    if (known != 0) continue;
    known = count;
    tensor.fill_(static_cast<double>(count));
    return tensor;
  }
  step_tensors_.emplace_back(count, torch::full({}, static_cast<double>(count), divisor_.options()));
  return step_tensors_.back().second;
}

bool Optimizer::step_adam(double lr, double decay, double divisor) {
  adam_.clear();
  const AdamRates rates{lr,    config_.betas[0], config_.betas[1],        config_.eps,
                        decay, divisor,          config_.name == "adamw", config_.maximize};
  for (size_t i = 0; i < lists_.params.size(); ++i)
    adam_.push_back({lists_.params[i].data_ptr<float>(), lists_.grads[i].const_data_ptr<float>(),
                     lists_.first[i].data_ptr<float>(), lists_.second[i].data_ptr<float>(),
                     config_.amsgrad ? lists_.third[i].data_ptr<float>() : nullptr, lists_.params[i].numel(),
                     adam_scalars(rates, lists_.counts[i])});
  return adam_step(adam_);
}

void Optimizer::step_other(double lr, double decay, double divisor) {
  const OtherRates rates{
      lr, config_.betas[0], config_.betas[1], config_.eps, decay, (config_.maximize ? -1.0 : 1.0) / divisor};
  for (size_t i = 0; i < lists_.params.size(); ++i) {
    if (is_factored(config_))
      adafactor_step(lists_.params[i], lists_.grads[i], lists_.first[i], lists_.second[i], lists_.counts[i], rates);
    else
      lion_step(lists_.params[i], lists_.grads[i], lists_.first[i], rates);
  }
}

void Optimizer::step_fused(double lr, double decay, double divisor, bool first_time) {
  std::optional<torch::Tensor> scale;
  if (divisor != 1.0) scale = divisor_.fill_(divisor);
  std::vector<torch::Tensor> steps;
  if (config_.is_adam())
    for (const int64_t count : lists_.counts) steps.push_back(step_tensor(count));
  const double beta1 = config_.betas[0], beta2 = config_.betas[1];
  if (config_.name == "adamw")
    at::_fused_adamw_(lists_.params, lists_.grads, lists_.first, lists_.second, lists_.third, steps, lr, beta1, beta2,
                      decay, config_.eps, config_.amsgrad, config_.maximize, scale);
  else if (config_.is_adam())
    at::_fused_adam_(lists_.params, lists_.grads, lists_.first, lists_.second, lists_.third, steps, lr, beta1, beta2,
                     decay, config_.eps, config_.amsgrad, config_.maximize, scale);
  else
    at::_fused_sgd_(lists_.params, lists_.grads, lists_.first, decay, config_.momentum, lr, config_.dampening,
                    config_.nesterov, config_.maximize, first_time, scale);
}

bool Optimizer::step_group(const Group& group, double lr, double divisor) {
  const double decay = group.weight_decay * decay_scale_, rate = lr * group.lr_scale;
  bool finite = true;
  // SGD starts a momentum buffer with the gradient itself. Parameters at their first step come last: what a pass has
  // moved no longer counts as new.
  for (const bool first_time : {false, true}) {
    lists_.clear();
    bool plain = config_.is_adam();
    for (size_t i : group.members) {
      const torch::Tensor& value = parameters_[i].value;
      torch::Tensor grad = value.grad();
      if (!grad.defined()) continue;
      const bool sgd_first = is_sgd(config_) && steps_[i] == 0;
      if (sgd_first != first_time) continue;
      if (grad.strides() != value.strides()) grad = torch::empty_like(value, at::MemoryFormat::Preserve).copy_(grad);
      plain = plain && value.is_cpu() && value.scalar_type() == torch::kFloat32 &&
              grad.scalar_type() == torch::kFloat32 && value.is_non_overlapping_and_dense();
      lists_.params.push_back(value);
      lists_.grads.push_back(std::move(grad));
      if (!first_.empty()) lists_.first.push_back(first_[i]);
      if (!second_.empty()) lists_.second.push_back(second_[i]);
      if (!third_.empty()) lists_.third.push_back(third_[i]);
      lists_.counts.push_back(++steps_[i]);
    }
    if (lists_.params.empty()) continue;
    const bool sound = plain ? step_adam(rate, decay, divisor) : true;
    finite = sound && finite;
    if (!plain) {
      if (config_.is_adam() || is_sgd(config_))
        step_fused(rate, decay, divisor, first_time);
      else
        step_other(rate, decay, divisor);
      if (lists_.params[0].is_cpu()) finite = !first_non_finite(lists_.params) && finite;
    }
    // Our kernel writes behind LibTorch's back, and LibTorch's own fused steps do not raise versions either; whoever
    // keeps something made of a parameter goes by its version.
    for (const torch::Tensor& parameter : lists_.params) parameter.unsafeGetTensorImpl()->bump_version();
  }
  return finite;
}

bool Optimizer::step(double lr, double divisor, const std::vector<std::string>& groups) {
  const torch::NoGradGuard no_grad;
  bool finite = true;
  for (auto& [count, slot] : step_tensors_) count = 0;
  for (const Group& group : groups_)
    if (groups.empty() || std::find(groups.begin(), groups.end(), group.name) != groups.end())
      finite = step_group(group, lr, divisor) && finite;
  lists_.clear();  // keeps no gradient alive
  return finite;
}

std::vector<torch::Tensor> Optimizer::gradients() const {
  std::vector<torch::Tensor> result;
  result.reserve(parameters_.size());
  for (const OptimizedParameter& p : parameters_) result.push_back(p.value.grad());
  return result;
}

void Optimizer::clear_gradients() {
  for (OptimizedParameter& p : parameters_) p.value.mutable_grad().reset();
}

NamedTensors Optimizer::state() const {
  NamedTensors state;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const std::string& name = parameters_[i].name;
    if (!first_.empty()) state.emplace_back(first_name(config_) + name, first_[i]);
    if (!second_.empty()) state.emplace_back(second_name(config_) + name, second_[i]);
    if (!third_.empty()) state.emplace_back("max_exp_avg_sq." + name, third_[i]);
  }
  state.emplace_back("steps", torch::tensor(steps_, torch::kInt64));
  return state;
}

void Optimizer::load_state(const std::map<std::string, torch::Tensor>& state) {
  const torch::NoGradGuard no_grad;
  const NamedTensors mine = this->state();
  if (mine.size() != state.size())
    throw CheckpointError(
        fmt::format("The checkpoint's optimiser has {} tensors, this job's has {}: the optimiser or the model differs.",
                    state.size(), mine.size()));
  for (const auto& [name, tensor] : mine) {
    const auto found = state.find(name);
    if (found == state.end()) throw CheckpointError(fmt::format("The checkpoint's optimiser lacks '{}'.", name));
    if (found->second.sizes() != tensor.sizes())
      throw CheckpointError(other_shape("optimiser tensor", name, found->second, tensor));
    if (name == "steps") {
      const torch::Tensor steps = found->second.to(torch::kInt64).contiguous();
      std::copy_n(steps.const_data_ptr<int64_t>(), steps_.size(), steps_.begin());
    } else {
      tensor.copy_(found->second);
    }
  }
}

std::vector<torch::Tensor> Optimizer::state_tensors() const {
  std::vector<torch::Tensor> all;
  for (const auto* list : {&first_, &second_, &third_}) all.insert(all.end(), list->begin(), list->end());
  return all;
}

std::vector<std::string> Optimizer::state_names() const {
  std::vector<std::string> names;
  const auto add = [&](bool has, const std::string& prefix) {
    if (has)
      for (const OptimizedParameter& p : parameters_) names.push_back(prefix + p.name);
  };
  add(!first_.empty(), first_name(config_));
  add(!second_.empty(), second_name(config_));
  add(!third_.empty(), "max_exp_avg_sq.");
  return names;
}

}  // namespace redline::train
