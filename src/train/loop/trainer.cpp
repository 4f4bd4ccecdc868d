#include "train/loop/trainer.h"

#include <fmt/format.h>
#include <torch/csrc/autograd/anomaly_mode.h>

#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/memory.h"
#include "device/process_memory.h"
#include "device/threads.h"
#include "train/loop/validation.h"
#include "train/signals.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;

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
      throw CheckpointError(fmt::format("The checkpoint's tensor '{}' has another shape than this model's.", name));
    torch::Tensor(target).copy_(found->second);
  }
  if (index.size() != to.size())
    throw CheckpointError(
        fmt::format("The checkpoint has {} tensors, this model {}: it is of another model.", index.size(), to.size()));
}

constexpr const char* kEmaPrefix = "ema.";
constexpr const char* kMonitorPrefix = "monitor.";
constexpr int64_t kRssEveryNs = 10'000'000;

}  // namespace

Trainer::Trainer(const Parts& parts, LoopSettings settings)
    : parts_(parts),
      settings_(std::move(settings)),
      observer_(parts.observer != nullptr ? parts.observer : &silent_),
      schema_(parts.task.schema()),
      scaler_(settings_.scaler),
      precision_(settings_.precision),
      compute_(parts.task, settings_.device, clock_),
      feed_(parts.train, parts.stream, clock_),
      drift_(settings_.drift_ratio > 0 ? settings_.drift_ratio : 1e9) {
  std::vector<std::string> unused;
  optimizer_ = std::make_unique<Optimizer>(
      settings_.optimizer,
      apply_parameter_rules(parts.task.module(), parts.task.parameter_groups(), settings_.rules, &unused));
  for (const std::string& rule : unused)
    log_warning(fmt::format("model.optim: no parameter's name fits the rule '{}'.", printable(rule)));
  for (const OptimizedParameter& p : optimizer_->parameters()) weights_.push_back(p.value.detach());
  if (settings_.ema) ema_ = std::make_unique<Ema>(settings_.ema->decay, named_model(parts.task.module()));
  if (settings_.monitor) monitor_ = parts.task.monitor();
  if (monitor_) {
    settings_.cadence.monitor_every_steps = monitor_->update_every_steps();
    if (!settings_.plot_directory.empty()) settings_.cadence.plot_every_steps = monitor_->plot_every_steps();
  }
  if (settings_.early_stopping) early_ = std::make_unique<EarlyStopping>(*settings_.early_stopping);
  if (parts.validation == nullptr) settings_.cadence.validation = false;
  state_.seed = settings_.seed;
  parts.task.module().train();
  enter_epoch(0, 0);
}

Trainer::~Trainer() = default;

void Trainer::attach(CheckpointStore* store, LoopObserver* observer) {
  parts_.store = store;
  observer_ = observer;
}

void Trainer::event(const std::string& kind, measure::FieldList fields) const { observer_->event(kind, fields); }

CheckpointState Trainer::state() const {
  CheckpointState result;
  result.model = named_model(parts_.task.module());
  result.optimizer = optimizer_->state();
  if (ema_)
    for (const auto& [name, tensor] : ema_->averages()) result.optimizer.emplace_back(kEmaPrefix + name, tensor);
  LoopState state = state_;
  state.plan_hash = parts_.train.position().plan_hash;
  state.loss_scale = scaler_.scale();
  state.growth_tracker = scaler_.growth_tracker();
  state.precision_name = precision_name(settings_.precision.requested);
  state.precision = precision_.state();
  state.memory_piece_cost = memory_.limit();
  if (early_) {
    state.early_best = early_->best();
    state.early_waited = early_->waited();
  }
  state.intra_op_threads = settings_.intra_op_threads;
  state.numerics = device::numerics_fingerprint();
  state.config_hash = settings_.config_hash;
  state.task_state = parts_.task.state_json();
  state.log_window = window_.sums();
  if (monitor_) {
    state.monitor_state = monitor_->state_json();
    for (const auto& [name, tensor] : monitor_->state_tensors())
      result.optimizer.emplace_back(kMonitorPrefix + name, tensor);
  }
  result.state_json = state.to_json();
  return result;
}

void Trainer::load(const CheckpointState& checkpoint) {
  restore(checkpoint);
  if (!state_.plan_hash)
    log_info(
        "The checkpoint is from an older redline that hashed data plans in another way, so its order of samples cannot "
        "be compared; it continues at its place in this job's order.");
  else if (const uint64_t plan = parts_.train.position().plan_hash; plan != *state_.plan_hash)
    log_warning(
        "The checkpoint was made with another data plan (other data, seed, batch size or order); training continues "
        "with the new one.");
  if (!state_.log_window && settings_.cadence.log_every_n_steps > 0 &&
      state_.step % settings_.cadence.log_every_n_steps != 0)
    log_info(
        "The checkpoint is of an older version and does not hold what was summed since the last log line: the first "
        "line after this resume covers fewer steps.");
  snapshot_.drop();
  next_snapshot_ = state_.step;
  save_began_step_ = state_.step;
  saved_step_ = -1;
}

void Trainer::restore(const CheckpointState& checkpoint) {
  feed_.drop_ahead();
  LoopState state = LoopState::from_json(checkpoint.state_json);
  load_named(checkpoint.model, named_model(parts_.task.module()));
  std::map<std::string, torch::Tensor> optimizer, averages, watched;
  for (const auto& [name, tensor] : checkpoint.optimizer) {
    if (starts_with(name, kEmaPrefix))
      averages[name.substr(std::string(kEmaPrefix).size())] = tensor;
    else if (starts_with(name, kMonitorPrefix))
      watched[name.substr(std::string(kMonitorPrefix).size())] = tensor;
    else
      optimizer[name] = tensor;
  }
  optimizer_->load_state(optimizer);
  optimizer_->clear_gradients();
  if (ema_) ema_->load(averages);
  scaler_.restore(state.loss_scale, state.growth_tracker);
  precision_.restore(state.precision);
  memory_.restore(state.memory_piece_cost);
  if (early_) early_->restore(state.early_best, state.early_waited);
  parts_.task.load_state_json(state.task_state);
  if (monitor_) {
    monitor_->load_state_json(state.monitor_state);
    monitor_->load_state_tensors(watched);
  }
  window_.restore(state.log_window.value_or(LogSums{}));
  state_ = std::move(state);
  enter_epoch(state_.epoch, state_.step_in_epoch);
}

void Trainer::go_to(int64_t epoch, int64_t step) {
  feed_.drop_ahead();
  state_.epoch = epoch;
  state_.step_in_epoch = step;
  enter_epoch(epoch, step);
}

void Trainer::run_monitor(bool plot) {
  const PhaseScope scope(clock_, Phase::Monitor);
  LogValues values{state_.step, monitor_->update(state_.step)};
  std::vector<std::string> plots;
  if (plot) plots = draw_plots();
  observer_->monitored(values, plots);
}

// A picture that cannot be written is skipped: the next one shows what it would have shown.
std::vector<std::string> Trainer::draw_plots() {
  std::string problem;
  try {
    std::filesystem::create_directories(settings_.plot_directory);
    std::vector<std::string> plots = monitor_->plot(state_.step, settings_.plot_directory);
    plots_fail_ = false;
    return plots;
  } catch (const DiskError& error) {
    problem = error.what();
  } catch (const std::filesystem::filesystem_error& error) {
    problem = error.what();
  }
  if (!plots_fail_) log_warning(fmt::format("The monitor's plots of step {} are skipped: {}", state_.step, problem));
  plots_fail_ = true;
  return {};
}

void Trainer::log_step(const StepOutcome& outcome, const CadencePosition& position) {
  const PhaseScope scope(clock_, Phase::Log);
  const LogWindow::Now now{now_ns(), process_cpu_ns(), clock_.times(), parts_.train.stats()};
  LogValues values{state_.step, window_.values(now)};
  auto& m = values.metrics;
  m["learning_rate"] = outcome.learning_rate;
  m["grad_norm"] = outcome.grad_norm;
  if (scaler_.enabled()) m["loss_scale"] = scaler_.scale();
  m["epoch"] = static_cast<double>(position.epoch) +
               static_cast<double>(position.step_in_epoch) / static_cast<double>(position.steps_per_epoch);
  const auto memory = device::memory::stats();
  m["memory_live_bytes"] = static_cast<double>(memory.live_bytes);
  m["memory_peak_bytes"] = static_cast<double>(memory.step_peak_bytes);
  m["rss_bytes"] = static_cast<double>(device::process_rss_bytes());
  m["skipped_steps"] = static_cast<double>(state_.skipped_steps);
  m["guard_actions"] = static_cast<double>(state_.guard_actions);
  m["bad_samples"] = static_cast<double>(now.loader.bad_samples);
  if (const int64_t looked_up = now.loader.cache_hits + now.loader.cache_misses; looked_up > 0)
    m["cache_hit_share"] = static_cast<double>(now.loader.cache_hits) / static_cast<double>(looked_up);
  if (const auto rate = m.find("samples_per_second"); rate != m.end() && settings_.fp32_gflops > 0)
    m["flops_share"] = parts_.task.flops_per_sample(window_.items_per_sample() / settings_.items_per_length) *
                       rate->second / (settings_.fp32_gflops * 1e9);
  if (parts_.store != nullptr && parts_.store->last_stall_seconds() > 0)
    m["checkpoint_seconds"] = parts_.store->last_stall_seconds();
  if (const auto drift = drift_.drift()) m["step_time_drift"] = *drift;
  observer_->log(values);
  window_.reset(now);
}

void Trainer::validate_now() {
  const PhaseScope scope(clock_, Phase::Validate);
  const int64_t begin = now_ns();
  ValidationSettings settings{settings_.seed, precision_.precision(), settings_.device, settings_.limit_val_batches,
                              [] { return StopFlag::requested(); }};
  const bool averaged = ema_ && !settings_.ema->validate_original_weights;
  if (averaged) ema_->swap();
  ValidationResult result;
  try {
    result = validate(parts_.task, *parts_.validation, settings, validation_memory_, parts_.stream);
  } catch (...) {
    if (averaged) ema_->swap();
    throw;
  }
  if (averaged) ema_->swap();
  state_.pending_validation = !result.complete && StopFlag::requested();
  if (!result.complete) {
    if (!state_.pending_validation) log_warning_once("The validation data makes no batch: nothing was validated.");
    return;
  }
  state_.last_validation = result.metrics;
  validated_step_ = state_.step;
  LogValues values{state_.step, result.metrics};
  values.metrics["validation_seconds"] = seconds_between(begin, now_ns());
  observer_->validated(values);
  if (!early_) return;
  const auto metric = result.metrics.find(settings_.early_metric);
  if (metric == result.metrics.end())
    throw ConfigError(fmt::format("Early stopping watches '{}', which no validation gives; this one gave {}.",
                                  settings_.early_metric, [&] {
                                    std::vector<std::string> names;
                                    for (const auto& [name, value] : result.metrics) names.push_back(name);
                                    return join(names, ", ");
                                  }()));
  if (const auto why = early_->update(metric->second))
    early_stop_ = fmt::format("{} at step {}: {}", settings_.early_metric, state_.step, *why);
}

void Trainer::save(bool wait) {
  if (parts_.store == nullptr) return;
  const PhaseScope scope(clock_, Phase::Checkpoint);
  std::optional<double> metric;  // only of a validation of this very state
  const auto found = state_.last_validation.find(settings_.save_metric);
  if (validated_step_ == state_.step && found != state_.last_validation.end()) metric = found->second;
  if (saved_step_ != state_.step) {
    save_began_ns_ = now_ns();
    save_began_step_ = state_.step;
    observer_->before_save();
    if (wait)
      parts_.store->save_sync(state(), state_.step, metric);
    else
      parts_.store->save(state(), state_.step, metric);
    saved_step_ = state_.step;
  }
  if (wait) parts_.store->wait();
}

void Trainer::save_if_due(const CadenceDecision& decision) {
  if (parts_.store == nullptr || left_out_.save) return;
  bool due = decision.validate && settings_.save_on_validation;
  due = due ||
        (decision.epoch_end && settings_.save_every_n_epochs && state_.epoch % *settings_.save_every_n_epochs == 0);
  if (!due) {
    IntervalInput input;
    input.steps_since_save = state_.step - save_began_step_;
    input.seconds_since_save = seconds_between(save_began_ns_, now_ns());
    input.stall_seconds = parts_.store->last_stall_seconds();
    input.write_seconds = parts_.store->last_write_seconds();
    input.slowdown_seconds = parts_.store->last_write_cpu_seconds();
    input.writer_busy = parts_.store->busy();
    due = should_save(settings_.save_interval, input);
  }
  if (due) save(/*wait=*/false);
}

CadenceDecision Trainer::after_step(const StepOutcome& outcome, const CadencePosition& position) {
  window_.add(outcome.result, outcome.committed);
  CadenceDecision decision = decide_cadence(settings_.cadence, position);
  decision.log = decision.log && !left_out_.log;
  decision.validate = decision.validate && !left_out_.validate;
  decision.monitor = decision.monitor && !left_out_.monitor;
  decision.plot = decision.plot && !left_out_.monitor;
  if (monitor_ && outcome.committed && (decision.monitor || decision.plot)) run_monitor(decision.plot);
  if (decision.log) log_step(outcome, position);
  if (decision.validate) {
    validate_now();
    decision.validate = !state_.pending_validation;
  }
  return decision;
}

void Trainer::write_row(const StepOutcome& outcome) {
  const auto memory = device::memory::stats();
  measure::StepRow row;
  row.phase_ns = clock_.end_step();
  row.wall_ns = clock_.wall_ns();
  row.begin_ns = clock_.begin_ns();
  row.step = state_.step;
  row.epoch = state_.step_in_epoch == 0 ? state_.epoch - 1 : state_.epoch;
  row.stage_ns = parts_.train.stats().stages.ns;
  for (size_t i = 0; i < row.stage_ns.size(); ++i) {
    const int64_t total = row.stage_ns[i];
    row.stage_ns[i] = total - stages_seen_[i];
    stages_seen_[i] = total;
  }
  row.samples = static_cast<int32_t>(outcome.result.samples);
  row.micro_batches = static_cast<int32_t>(outcome.result.pieces);
  row.items = outcome.result.items;
  row.padded_items = outcome.result.padded_items;
  row.live_bytes = memory.live_bytes;
  row.peak_bytes = memory.step_peak_bytes;
  // Asking the kernel takes microseconds, which a step of one millisecond would feel.
  if (const int64_t now = row.begin_ns + row.wall_ns; now - rss_read_ns_ >= kRssEveryNs) {
    rss_bytes_ = device::process_rss_bytes();
    rss_read_ns_ = now;
  }
  row.rss_bytes = rss_bytes_;
  row.loss = outcome.result.loss;
  row.learning_rate = outcome.learning_rate;
  row.grad_norm = outcome.grad_norm;
  row.flags = outcome.flags | next_flags_;
  if (!clock_.timed()) row.flags |= measure::kStepUntimed;
  next_flags_ = 0;
  window_.add_phases(row.phase_ns);
  const double seconds = static_cast<double>(row.wall_ns) * 1e-9;
  step_seconds_ = step_seconds_ > 0 ? 0.9 * step_seconds_ + 0.1 * seconds : seconds;
  if (clock_.timed())
    clock_.sample_every(
        measure::sampling_interval(clock_.scopes(), measure::calibrate_scope_ns(), 1e9 * step_seconds_));
  observer_->step(row);
  if (clock_.timed()) check_drift(row);
  check_memory(row);
}

void Trainer::check_memory(const measure::StepRow& row) {
  if (!memory_watch_) return;
  const auto limit = memory_watch_->update(row.rss_bytes, row.peak_bytes);
  if (!limit) return;
  device::memory::set_limit(*limit);
  event("guard.memory_limit",
        {{"step", row.step}, {"limit_bytes", *limit}, {"rss_bytes", row.rss_bytes}, {"peak_bytes", row.peak_bytes}});
  log_warning_once(fmt::format(
      "The process holds {} that are not tensors, more than the reserve for them: tensors may now take {}. Lower "
      "max_buffer_bytes, prefetch_factor or num_workers if steps become too small.",
      format_bytes(static_cast<uint64_t>(std::max<int64_t>(0, row.rss_bytes - row.peak_bytes))),
      format_bytes(static_cast<uint64_t>(*limit))));
}

void Trainer::check_drift(const measure::StepRow& row) {
  const auto drift = drift_.add(row);
  if (!drift) return;
  event("drift", {{"step", row.step},
                  {"ratio", drift->ratio},
                  {"phase", std::string(measure::phase_name(drift->phase))},
                  {"phase_seconds_before", drift->phase_start_seconds},
                  {"phase_seconds_now", drift->phase_now_seconds}});
  log_warning(
      fmt::format("Steps now take {:.2f} times as long per sample as at the start ({} against {}); what grew most is "
                  "{} ({} to {}).",
                  drift->ratio, format_seconds(drift->now_seconds), format_seconds(drift->start_seconds),
                  measure::phase_name(drift->phase), format_seconds(drift->phase_start_seconds),
                  format_seconds(drift->phase_now_seconds)));
}

// "Check that half precision is really on": what share of the operators' time ran in it.
void Trainer::say_precision(const std::vector<OperatorTime>& times) {
  const torch::ScalarType type = pass_.precision == Precision::Fp16Mixed ? torch::kFloat16 : torch::kBFloat16;
  const double share = dtype_share(times, type);
  event("precision",
        {{"step", state_.step}, {"precision", std::string(precision_name(pass_.precision))}, {"share", share}});
  log_info(fmt::format("Precision {} is in force: {:.0f} % of the operators' time runs in {}.",
                       precision_name(pass_.precision), 100 * share, type == torch::kFloat16 ? "fp16" : "bf16"));
}

void Trainer::run_steps(int64_t count) {
  clock_.forget_idle();
  parts_.task.module().train();
  take_snapshot_if_due();
  for (int64_t i = 0; i < count && !StopFlag::requested(); ++i) one_step();
}

bool Trainer::validate_once() {
  if (parts_.validation == nullptr) return false;
  validate_now();
  parts_.task.module().train();
  return true;
}

bool Trainer::monitor_once() {
  if (!monitor_) return false;
  run_monitor(/*plot=*/false);
  return true;
}

bool Trainer::save_once() {
  if (parts_.store == nullptr) return false;
  saved_step_ = -1;
  save(/*wait=*/false);
  return true;
}

void Trainer::take_ahead(int64_t count) { feed_.take_ahead(std::min(count, steps_this_epoch_ - state_.step_in_epoch)); }

void Trainer::run_loader(int64_t count) {
  clock_.forget_idle();
  for (int64_t i = 0; i < count && !StopFlag::requested(); ++i) {
    clock_.begin_step();
    StepOutcome outcome;
    feed_.begin_step();
    for (size_t micro = 0; const task::Batch* batch = feed_.get(micro); ++micro) {
      outcome.result.samples += batch->size();
      outcome.result.items += batch->items;
      outcome.result.padded_items += batch->padded_items;
      ++outcome.result.pieces;
    }
    advance(outcome);
    write_row(outcome);
  }
}

FitResult Trainer::fit() {
  std::unique_ptr<torch::autograd::DetectAnomalyGuard> anomaly;
  if (settings_.detect_anomaly) anomaly = std::make_unique<torch::autograd::DetectAnomalyGuard>();
  if (settings_.process_bytes > 0) memory_watch_.emplace(device::memory::limit(), settings_.process_bytes);
  const int64_t begin_ns = save_began_ns_ = now_ns();
  save_began_step_ = saved_step_ = state_.step;
  if (state_.step > 0) next_flags_ = measure::kStepAfterResume;
  window_.start_clock({begin_ns, process_cpu_ns(), {}, parts_.train.stats()});
  stages_seen_ = parts_.train.stats().stages.ns;
  clock_.forget_idle();
  parts_.task.module().train();
  take_snapshot_if_due();
  if (settings_.sanity_batches != 0 && state_.step == 0 && parts_.validation != nullptr) {
    ValidationSettings sanity{
        settings_.seed, precision_.precision(), settings_.device, {}, [] { return StopFlag::requested(); }};
    if (settings_.sanity_batches > 0) sanity.limit_batches.count = settings_.sanity_batches;
    validate(parts_.task, *parts_.validation, sanity, validation_memory_, parts_.stream);
  }
  if (settings_.precision.requested != Precision::Fp32 && settings_.device.is_cpu())
    precision_report_step_ = state_.step + 2;
  FitResult result;
  if (state_.pending_validation && parts_.validation != nullptr) validate_now();
  while (early_stop_.empty() && !StopFlag::requested()) {
    result.stop = decide_stop(settings_.cadence, state_.step, state_.epoch, seconds_between(begin_ns, now_ns()));
    if (result.stop != StopReason::None) break;
    one_step();
  }
  if (StopFlag::requested()) saved_step_ = -1;  // a validation may have been interrupted since the last save
  save(/*wait=*/true);
  result.early_stop = early_stop_;
  result.stop_signal = StopFlag::signal();
  result.steps = state_.step;
  result.epochs = state_.epoch;
  result.last_loss = last_loss_;
  result.last_validation = state_.last_validation;
  return result;
}

}  // namespace redline::train
