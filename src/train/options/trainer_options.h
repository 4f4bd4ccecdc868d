// The `trainer` section: Lightning's names and meanings, the guides' flags as aliases. Each row is one option; nothing
// reads an option that is not declared here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields.h"
#include "core/precision.h"
#include "train/guards/guard_config.h"
#include "train/loop/cadence.h"
#include "train/optim/loss_scaler.h"

namespace redline::train {

// Lightning's `strategy: ddp` or `strategy: {_target_: …DDPStrategy, …}`.
struct StrategyConfig {
  std::string name = "auto";
  bool gradient_as_bucket_view = true, find_unused_parameters = false;
  double bucket_cap_mb = 25.0;
  std::string compression = "none", process_group_backend = "auto";
  std::string timeout = "30m", peer_timeout = "60s", rendezvous_timeout = "5m";
  bool looks_for_unused() const { return find_unused_parameters || name == "ddp_find_unused_parameters_true"; }
  static config::Table<StrategyConfig> fields();
};

struct TrainerConfig {
  std::string accelerator = "auto";
  config::Auto<std::string> devices = std::string("1");
  std::optional<std::string> gpu_ids;
  int64_t num_nodes = 1;
  StrategyConfig strategy;
  config::Auto<std::string> precision;
  bool precision_strict = false;
  AmpConfig amp;
  int64_t max_epochs = -1, max_steps = -1;
  std::optional<int64_t> max_iters;
  std::optional<std::string> max_time;
  int64_t accumulate_grad_batches = 1;
  double gradient_clip_val = 0.0;
  std::string gradient_clip_algorithm = "norm";
  std::string limit_train_batches = "1.0", limit_val_batches = "1.0", limit_test_batches = "1.0",
              val_check_interval = "1.0";
  std::optional<int64_t> check_val_every_n_epoch = 1;
  int64_t num_sanity_val_steps = 0, log_every_n_steps = 50;
  bool enable_progress_bar = true, enable_model_summary = false, detect_anomaly = false;
  bool sync_batchnorm = false, benchmark = false, deterministic = true;
  bool fast_dev_run = false;
  std::string compile = "false";
  std::string compile_time_limit = "10m";
  int64_t compile_packages = 4;
  config::Auto<bool> channels_last;
  config::Auto<int64_t> intra_op_threads;
  std::optional<std::string> memory_limit;
  double drift_ratio = 1.25;
  GuardConfig guards;

  static config::Table<TrainerConfig> fields();
  // Checks what single rows cannot (both strategies of stopping, max_steps 0, unknown precision) and turns fast_dev_run
  // and max_iters into what they mean.
  void check_and_derive();
};

// parse_precision(), or a ConfigError that says what is supported.
Precision read_precision(const std::string& text);

}  // namespace redline::train
