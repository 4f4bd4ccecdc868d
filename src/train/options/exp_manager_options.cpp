#include "train/options/exp_manager_options.h"

namespace redline::train {

using config::Effect;

config::Table<ExpManagerConfig> ExpManagerConfig::fields() {
  using T = ExpManagerConfig;
  config::Table<T> table;
  table.about("Where a run is written and what is written.");
  table.add("exp_dir", &T::exp_dir, "Folder of runs; the run is exp_dir/name.");
  table.add("name", &T::name, "Name of the run; null: the job's name.");
  table
      .add(
          "new_run", &T::new_run,
          "Without run_dir and exp_dir: a new folder runs/name/date, also when an unfinished run of this job is there.")
      .effect(Effect::Nothing)
      .flag("new-run");
  table.add("run_dir", &T::run_dir, "The run's own folder; stronger than exp_dir.")
      .flag("run-dir")
      .alias(".run_dir")
      .alias(".work-dir")
      .alias(".work_dir")
      .alias("explicit_log_dir")
      .alias(".output_dir");
  table.add("create_tensorboard_logger", &T::create_tensorboard_logger, "Write TensorBoard event files.")
      .effect(Effect::Nothing);
  table
      .add("histograms_every_n_steps", &T::histograms_every_n_steps,
           "Write TensorBoard histograms of all weights at log steps that are multiples of this; 0: never.")
      .cadence(config::Counts::Steps)
      .at_least(0);
  table.add("create_csv_logger", &T::create_csv_logger, "Write metrics.csv.").effect(Effect::Nothing);
  table
      .add("create_mlflow_logger", &T::create_mlflow_logger,
           "A process beside the run writes its metrics into MLflow's file store, or sends them to its server.")
      .effect(Effect::Nothing);
  table.add("mlflow_logger_kwargs", &T::mlflow_logger_kwargs,
            "experiment_name, run_name and tracking_uri (a folder, default mlruns here, or http://...).");
  table
      .add("create_wandb_logger", &T::create_wandb_logger,
           "A process beside the run writes its metrics as Weights & Biases' offline files (needs its package).")
      .effect(Effect::Nothing);
  table.add("wandb_logger_kwargs", &T::wandb_logger_kwargs, "project and name.");
  table.add("on_validation", &T::on_validation,
            "A command after each validation, run without a shell beside the run; REDLINE_STEP, REDLINE_METRICS and "
            "REDLINE_RUN_DIR tell it what happened. Its failure is a warning.");
  table.add("on_checkpoint", &T::on_checkpoint, "The same after each checkpoint.");
  table.add("on_end", &T::on_end, "The same at the end; REDLINE_WHY says why.");
  table.add("create_checkpoint_callback", &T::create_checkpoint_callback, "Save checkpoints.").effect(Effect::Nothing);
  table.group("checkpoint_callback_params", &T::checkpoint_callback_params, "When to save and what to keep.");
  table.add("create_early_stopping_callback", &T::create_early_stopping_callback,
            "Stop early, as early_stopping_callback_params says.");
  table.group("early_stopping_callback_params", &T::early_stopping_callback_params, "When to stop early.");
  table.group("ema", &T::ema, "Moving average of the weights.");
  table.add("resume_if_exists", &T::resume_if_exists, "Continue when the run directory has a checkpoint.");
  table
      .add("resume", &T::resume,
           "auto: the newest checkpoint of the run directory, if any; last, best or a step: that one of the run's; a "
           "path: that generation or run; none: refuse an existing run.")
      .flag("resume")
      .alias(".resume_from")
      .alias(".resume_from_checkpoint");
  table.accept("resume_ignore_no_checkpoint", {}, "a run directory without a checkpoint starts from the beginning");
  table.accept("resume_past_end", {"false"}, "a finished run says so and ends");
  table.accept("use_datetime_version", {"true", "false"}, "a run directory holds one run");
  table.accept("version", {"null"}, "a run directory holds one run");
  table.accept("files_to_copy", {"null"}, "the resolved config is always written");
  table.accept("log_step_timing", {"true", "false"}, "every step's phases are recorded");
  table.accept("summary_writer_kwargs", {"null"}, "the event files need no settings");
  table.accept("seconds_to_sleep", {}, "nothing to wait for");
  return table;
}

config::Table<RootConfig> RootConfig::fields() {
  using T = RootConfig;
  config::Table<T> table;
  table.add("name", &T::name, "Name of the job.");
  table.add("task", &T::task, "Which task this is; null: recognised by its keys.");
  table.add("seed", &T::seed, "Seed of weights, order and every random draw.")
      .at_least(0)
      .flag("seed")
      .alias(".seed_everything")
      .alias(".init_seed");
  table
      .add("load_from", &T::load_from,
           "Weights to start from: a .safetensors file, a checkpoint, a run, or another project's file (.nemo, .ckpt, "
           ".pt), which a child process converts. Missing and unexpected names are listed.")
      .flag("load_from")
      .path()
      .alias(".init_from_pretrained")
      .alias(".init_from_nemo_model")
      .alias(".init_from_ptl_ckpt");
  table.add("load_strict", &T::load_strict, "Refuse weights whose names or shapes do not all fit.");
  table.accept("dist_params", {}, "ranks use Gloo or NCCL as LibTorch has them");
  table.accept("log_level", {}, "use -v or -q");
  table.accept("workflow", {}, "training, with validation as the trainer section says");
  table.accept("hydra", {}, "redline is not Hydra");
  table.accept("evaluation.metric", {"mIoU"}, "a task computes all its metrics; mIoU is val_miou");
  table.accept("evaluation.pre_eval", {"true", "false"}, "a validation keeps areas, never predictions");
  table.accept("evaluation.efficient_test", {"true", "false"}, "a validation keeps areas, never predictions");
  table.accept("evaluation.by_epoch", {"false"}, "intervals count micro-iterations");
  table.accept("checkpoint_config.by_epoch", {"false"}, "intervals count micro-iterations");
  table.accept("lr_config.by_epoch", {"false"}, "the schedule moves with every step");
  table.accept("lr_config.warmup", {"linear"}, "the warm-up is linear");
  table.accept("runner.type", {"IterBasedRunner"}, "this runner is the only one");
  return table;
}

config::Table<MoreValidationConfig> MoreValidationConfig::fields() {
  config::Table<MoreValidationConfig> table;
  table
      .add(
          "also", &MoreValidationConfig::also,
          "Further sets with the same settings, {name: as manifest_filepath or path}; their metrics are val_loss/NAME.")
      .paths();
  return table;
}

std::optional<std::filesystem::path> named_run_directory(const ExpManagerConfig& config, const std::string& job_name) {
  if (config.run_dir) return *config.run_dir;
  if (config.exp_dir) return std::filesystem::path(*config.exp_dir) / config.name.value_or(job_name);
  return std::nullopt;
}

}  // namespace redline::train
