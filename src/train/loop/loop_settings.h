// Everything the loop needs to know, as plain values: made from a resolved job (job/loop_settings.cpp).
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>

#include "core/precision.h"
#include "train/checkpoint/interval.h"
#include "train/compile/compile_settings.h"
#include "train/guards/guard_config.h"
#include "train/loop/cadence.h"
#include "train/loop/early_stopping.h"
#include "train/optim/ema.h"
#include "train/optim/loss_scaler.h"
#include "train/optim/optim_config.h"
#include "train/optim/schedule.h"
#include "train/step/step_engine.h"

namespace redline::train {

struct LoopSettings {
  uint64_t seed = 0;
  torch::Device device = torch::kCPU;
  bool detect_anomaly = false;

  Precision precision = Precision::Fp32;  // that the run asks for
  AmpConfig amp;
  CompileSettings compile;
  GuardConfig guards;

  OptimConfig optim;
  Schedule schedule;
  StepEngine::Settings step;
  std::optional<EmaConfig> ema;

  CadenceSettings cadence;
  CountOrShare limit_train_batches, limit_val_batches;
  int64_t sanity_batches = 0;  // -1 = all
  bool monitor = true;
  std::string plot_directory;  // empty: no plots
  double drift_ratio = 1.25;

  IntervalPolicy save_interval;
  std::optional<int64_t> save_every_n_epochs;
  bool save_on_validation = true;
  std::string save_metric = "val_loss";
  std::optional<EarlyStoppingConfig> early_stopping;

  // For the model's arithmetic against the machine's: its measured rate (0: not measured), and how many of the data's
  // counted items make one unit of a sample's length (audio: samples per second).
  double fp32_gflops = 0, items_per_length = 1;
  int64_t process_bytes = 0;  // that the whole process may hold; 0: not watched
  int64_t intra_op_threads = 0;
  std::string config_hash;
};

}  // namespace redline::train
