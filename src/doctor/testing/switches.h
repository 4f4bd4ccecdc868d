// The switches of a job as its option rows declare them, for tests of what the rules make of them.
#pragma once

#include "doctor/job_view.h"

namespace redline::doctor {

// A default job, or with values of rules in place of the defaults: {{"workers", "2"}}.
inline JobView example_view(const std::map<std::string, std::string>& values = {}) {
  using config::Effect;
  JobView job;
  job.switches = {
      {"model.train_ds.batch_size", "batch_size", Effect::Optimisation, "batch", {"2x", "4x", "8x"}, "1"},
      {"model.train_ds.micro_batch_size", "micro_batch_size", Effect::Nothing, "micro_batch", {}, ""},
      {"trainer.accumulate_grad_batches", "accumulate_grad_batches", Effect::Optimisation, "accumulation", {}, "1"},
      {"model.train_ds.num_workers", "num_workers", Effect::Nothing, "workers", {"0", "1", "2", "4", "8", "16"}, "0"},
      {"trainer.intra_op_threads", "intra_op_threads", Effect::Numerics, "threads", {}, "1"},
      {"model.train_ds.prefetch_factor", "prefetch_factor", Effect::Nothing, "prefetch", {"4", "8"}, "2"},
      {"model.train_ds.pin_memory", "pin_memory", Effect::Nothing, "pinning", {"false", "true"}, "false"},
      {"model.train_ds.use_bucketing", "use_bucketing", Effect::Order, "bucketing", {"false", "true"}, "false"},
      {"model.train_ds.num_buckets", "num_buckets", Effect::Order, "buckets", {"4", "8"}, "1"},
      {"model.train_ds.use_dynamic_padding", "use_dynamic_padding", Effect::Numerics, "padding", {}, "true"},
      {"model.train_ds.cache", "cache", Effect::Nothing, "cache", {"memory"}, "none"},
      {"model.train_ds.decode", "decode", Effect::Numerics, "decode", {"exact", "fast"}, "exact"},
      {"model.train_ds.is_tarred", "is_tarred", Effect::Order, "tars", {"false", "true"}, "false"},
      {"trainer.precision",
       "precision",
       Effect::Numerics,
       "precision",
       {"32-true", "bf16-mixed", "16-mixed"},
       "32-true"},
      {"trainer.channels_last", "channels_last", Effect::Numerics, "channels_last", {"false", "true"}, "false"},
      {"trainer.log_every_n_steps", "log_every_n_steps", Effect::Nothing, "log", {}, "50"},
      {"trainer.val_check_interval", "val_check_interval", Effect::Nothing, "validation", {}, "1.0"},
      {"exp_manager.checkpoint_callback_params.every_n_train_steps",
       "every_n_train_steps",
       Effect::Nothing,
       "checkpoint",
       {},
       ""}};
  for (config::SearchDimension& option : job.switches)
    if (const auto found = values.find(option.rule); found != values.end()) option.value = found->second;
  read_switches(job);
  return job;
}

}  // namespace redline::doctor
