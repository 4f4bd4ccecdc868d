// From a resolved job to the loop's plain settings.
#include <fmt/format.h>

#include "core/error.h"
#include "core/strings.h"
#include "device/profile.h"
#include "train/job.h"

namespace redline::train {

namespace {

CadenceSettings cadence_of(const TrainerConfig& t) {
  CadenceSettings s;
  s.log_every_n_steps = t.log_every_n_steps;
  s.val_check_interval = parse_count_or_share(t.val_check_interval, "trainer.val_check_interval");
  s.check_val_every_n_epoch = t.check_val_every_n_epoch.value_or(0);
  s.batches_per_step = t.accumulate_grad_batches;
  s.max_steps = t.max_steps;
  s.max_epochs = t.max_epochs;
  if (t.max_time) s.max_seconds = *parse_seconds(*t.max_time);
  return s;
}

IntervalPolicy save_interval_of(const CheckpointConfig& c, int64_t accumulate) {
  IntervalPolicy policy;
  policy.every_steps = c.every_n_train_steps;
  if (c.every_n_micro_iterations) policy.every_steps = std::max<int64_t>(1, *c.every_n_micro_iterations / accumulate);
  if (c.train_time_interval) {
    policy.every_seconds = parse_seconds(*c.train_time_interval);
    if (!policy.every_seconds)
      throw ConfigError(fmt::format(
          "exp_manager.checkpoint_callback_params.train_time_interval is '{}'; expected a time such as 10m.",
          printable(*c.train_time_interval)));
  }
  policy.overhead_limit = c.overhead_limit;
  policy.mean_time_between_failures_seconds = c.mean_time_between_failures_seconds;
  return policy;
}

}  // namespace

CompileSettings compile_settings(const TrainerConfig& trainer, const MachineFacts& machine) {
  CompileSettings s;
  s.mode = trainer.compile == "true"   ? CompileMode::Before
           : trainer.compile == "auto" ? CompileMode::Background
                                       : CompileMode::Off;
  s.limit_seconds = parse_seconds(trainer.compile_time_limit).value_or(0);
  s.most_packages = trainer.compile_packages;
  if (const std::filesystem::path profile = device::profile_path(machine); !profile.empty())
    s.folder = profile.parent_path() / "steps";
  s.machine = device::profile_key(machine);
  s.threads = trainer.intra_op_threads.value();
  return s;
}

LoopSettings make_loop_settings(const Job& job, const task::Task& task, const data::Loader& train,
                                std::vector<std::string>* notes) {
  const TrainerConfig& t = job.trainer();
  const ExpManagerConfig& e = job.exp_manager();
  LoopSettings s;
  s.seed = job.seed();
  s.device = job.device();
  s.detect_anomaly = t.detect_anomaly;
  s.precision = job.precision();
  s.amp = t.amp;
  s.compile = compile_settings(t, job.machine());
  s.guards = t.guards;
  s.cadence = cadence_of(t);
  s.limit_train_batches = parse_count_or_share(t.limit_train_batches, "trainer.limit_train_batches");
  s.limit_val_batches = parse_count_or_share(t.limit_val_batches, "trainer.limit_val_batches");
  s.sanity_batches = t.num_sanity_val_steps;
  s.drift_ratio = t.drift_ratio;
  s.optim = job.optim();
  s.step.clip = t.gradient_clip_val;
  s.step.clip_by_value = t.gradient_clip_algorithm == "value";
  const int64_t steps_per_epoch =
      limited_steps(train.steps_per_epoch(), s.limit_train_batches, t.accumulate_grad_batches);
  RunLength run{t.max_steps, steps_per_epoch, t.accumulate_grad_batches,
                static_cast<double>(job.train_ds().batch_size.value() * t.accumulate_grad_batches)};
  if (t.max_epochs > 0 && (run.max_steps < 0 || t.max_epochs * steps_per_epoch < run.max_steps))
    run.max_steps = t.max_epochs * steps_per_epoch;
  s.schedule = make_schedule(job.optim(), run, notes);
  if (s.optim.weight_decay_end && s.optim.weight_decay > 0) {
    s.step.decay_end = *s.optim.weight_decay_end / s.optim.weight_decay;
    s.step.decay_steps = std::max<int64_t>(0, run.max_steps);
  }
  if (e.ema.enable) s.ema = e.ema;
  const CheckpointConfig& c = e.checkpoint_callback_params;
  s.save_interval = save_interval_of(c, t.accumulate_grad_batches);
  s.save_every_n_epochs = c.every_n_epochs;
  s.save_on_validation = c.save_on_validation;
  s.save_metric = c.monitor.value();
  if (e.create_early_stopping_callback) s.early_stopping = e.early_stopping_callback_params;
  const bool watches_loss = (e.create_checkpoint_callback && s.save_metric == "val_loss") ||
                            (s.early_stopping && s.early_stopping->monitor.value() == "val_loss");
  if (notes != nullptr && watches_loss && job.monitor_metric() != "val_loss")
    notes->push_back(fmt::format(
        "val_loss is monitored as asked, but this task's loss changes its meaning while it trains, so early "
        "checkpoints may look best; {} does not (monitor: auto).",
        job.monitor_metric()));
  s.fp32_gflops = job.machine().gemm_fp32_gflops;
  s.items_per_length = task.kind()->items_per_length(job.train_ds());
  s.intra_op_threads = t.intra_op_threads.value();
  s.config_hash = job.config_hash();
  if (notes != nullptr && task.batch_statistics() && t.accumulate_grad_batches > 1)
    notes->push_back(
        fmt::format("This model's BatchNorm sees one batch of {} at a time, not the effective batch of {}: "
                    "accumulation does not equal a larger batch for it.",
                    job.train_ds().batch_size.value(), job.train_ds().batch_size.value() * t.accumulate_grad_batches));
  return s;
}

}  // namespace redline::train
