// The `exp_manager` section (NeMo's names): where a run is written, what is written, resuming, early stopping,
// averaging.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "config/fields.h"
#include "train/checkpoint/options.h"
#include "train/loop/early_stopping.h"
#include "train/optim/ema.h"

namespace redline::train {

struct ExpManagerConfig {
  std::optional<std::string> exp_dir, name;
  std::optional<std::string> run_dir;
  bool create_tensorboard_logger = true, create_csv_logger = true, create_checkpoint_callback = true;
  int64_t histograms_every_n_steps = 0;
  CheckpointConfig checkpoint_callback_params;
  bool create_early_stopping_callback = false;
  EarlyStoppingConfig early_stopping_callback_params;
  EmaConfig ema;
  bool resume_if_exists = true, new_run = false;
  std::optional<std::string> resume;
  bool create_mlflow_logger = false, create_wandb_logger = false;
  config::Node mlflow_logger_kwargs, wandb_logger_kwargs;
  std::optional<std::string> on_validation, on_checkpoint, on_end;
  static config::Table<ExpManagerConfig> fields();
  std::string resume_word() const { return resume.value_or(resume_if_exists ? "auto" : "none"); }
  bool resumes_by_itself() const { return resume_word() == "auto" || resume_word() == "true"; }
  // A checkpoint of the run itself, by name: last, best, or the number of a step.
  bool resumes_by_name() const {
    const std::string word = resume_word();
    return word == "last" || word == "best" ||
           (!word.empty() && word.find_first_not_of("0123456789") == std::string::npos);
  }
  bool never_resumes() const { return resume_word() == "none" || resume_word() == "false"; }
};

// The keys at the root of a job.
struct RootConfig {
  std::string name = "redline";
  std::optional<std::string> task;
  int64_t seed = 42;
  std::optional<std::string> load_from;
  bool load_strict = false;
  static config::Table<RootConfig> fields();
};

// Beside the validation's own data, in the same section.
struct MoreValidationConfig {
  config::Node also;  // {name: as manifest_filepath or path}
  static config::Table<MoreValidationConfig> fields();
};

// run_dir; else exp_dir/name; nullopt when the run is one of runs/<name>/<date> (train/run/run_place.h).
std::optional<std::filesystem::path> named_run_directory(const ExpManagerConfig& config, const std::string& job_name);

}  // namespace redline::train
