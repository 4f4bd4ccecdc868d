#include "train/loop/training_state.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/threads.h"
#include "train/files/safetensors.h"
#include "train/optim/gradients.h"
#include "train/optim/parameter_rules.h"

namespace redline::train {

namespace {

NamedTensors named_model(torch::nn::Module& module) {
  NamedTensors tensors;
  for (const auto& item : module.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  for (const auto& item : module.named_buffers()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

void load_named(const NamedTensors& from, const NamedTensors& to) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> index(from.begin(), from.end());
  for (const auto& [name, target] : to) {
    const auto found = index.find(name);
    if (found == index.end())
      throw CheckpointError(fmt::format("The checkpoint has no tensor '{}', which this model needs.", name));
    if (found->second.sizes() != target.sizes())
      throw CheckpointError(other_shape("tensor", name, found->second, target));
    torch::Tensor(target).copy_(found->second);
  }
  if (index.size() != to.size())
    throw CheckpointError(
        fmt::format("The checkpoint has {} tensors, this model {}: it is of another model.", index.size(), to.size()));
}

const std::string kEmaPrefix = "ema.", kMonitorPrefix = "monitor.";

std::unique_ptr<Optimizer> make_optimizer(task::Task& task, const OptimConfig& config) {
  std::vector<std::string> unused;
  auto optimizer = std::make_unique<Optimizer>(
      config, apply_parameter_rules(task.module(), task.parameter_groups(), config.rules(), &unused));
  for (const std::string& rule : unused)
    log_warning(fmt::format("model.optim: no parameter's name fits the rule '{}'.", printable(rule)));
  return optimizer;
}

}  // namespace

TrainingState::TrainingState(const LoopParts& parts, const LoopSettings& settings)
    : optimizer(make_optimizer(parts.task, settings.optim)),
      scaler(settings.amp, settings.precision == Precision::Fp16Mixed),
      precision(settings.guards, settings.precision),
      parts_(parts),
      settings_(settings) {
  for (const OptimizedParameter& p : optimizer->parameters()) weights_.push_back(p.value.detach());
  if (settings.ema) ema = std::make_unique<Ema>(*settings.ema, named_model(parts.task.module()));
  if (settings.monitor) monitor = parts.task.monitor();
  if (settings.early_stopping) early = std::make_unique<EarlyStopping>(*settings.early_stopping);
  at.seed = settings.seed;
}

CheckpointState TrainingState::checkpoint() const {
  CheckpointState result;
  result.model = named_model(parts_.task.module());
  result.optimizer = optimizer->state();
  if (ema)
    for (const auto& [name, tensor] : ema->averages()) result.optimizer.emplace_back(kEmaPrefix + name, tensor);
  LoopState state = at;
  state.plan_hash = parts_.train.position().plan_hash;
  state.loss_scale = scaler.scale();
  state.growth_tracker = scaler.growth_tracker();
  state.precision_name = precision_name(settings_.precision);
  state.precision = precision.state();
  state.memory_piece_cost = memory.limit();
  if (early) {
    state.early_best = early->best();
    state.early_waited = early->waited();
  }
  state.intra_op_threads = settings_.intra_op_threads;
  state.numerics = device::numerics_fingerprint();
  state.config_hash = settings_.config_hash;
  state.task_state = parts_.task.state_json();
  state.log_window = window.sums();
  if (monitor) {
    state.monitor_state = monitor->state_json();
    for (const auto& [name, tensor] : monitor->state_tensors())
      result.optimizer.emplace_back(kMonitorPrefix + name, tensor);
  }
  result.state_json = state.to_json();
  return result;
}

void TrainingState::restore(const CheckpointState& checkpoint) {
  LoopState state = LoopState::from_json(checkpoint.state_json);
  load_named(checkpoint.model, named_model(parts_.task.module()));
  std::map<std::string, torch::Tensor> moments, averages, watched;
  for (const auto& [name, tensor] : checkpoint.optimizer) {
    if (starts_with(name, kEmaPrefix))
      averages[name.substr(kEmaPrefix.size())] = tensor;
    else if (starts_with(name, kMonitorPrefix))
      watched[name.substr(kMonitorPrefix.size())] = tensor;
    else
      moments[name] = tensor;
  }
  optimizer->load_state(moments);
  optimizer->clear_gradients();
  if (ema) ema->load(averages);
  scaler.restore(state.loss_scale, state.growth_tracker);
  precision.restore(state.precision);
  memory.restore(state.memory_piece_cost);
  if (early) early->restore(state.early_best, state.early_waited);
  parts_.task.load_state_json(state.task_state);
  if (monitor) {
    monitor->load_state_json(state.monitor_state);
    monitor->load_state_tensors(watched);
  }
  window.restore(state.log_window.value_or(LogSums{}));
  at = std::move(state);
}

std::optional<std::string> TrainingState::first_damage() const {
  const auto weight = first_non_finite(weights_);
  if (!weight) return std::nullopt;
  // The cause is usually in the optimiser's state: name it when it is.
  if (const auto state = first_non_finite(optimizer->state_tensors()))
    return "optimiser state " + optimizer->state_names()[*state];
  return "weight " + optimizer->parameters()[*weight].name;
}

}  // namespace redline::train
