// The training loop: compute, then commit (design). Knows a task, loaders, an observer and plain settings; no config,
// no files, no model. Several may live in one process, one after another or in turns.
//
// Threads: one. Every step ends either committed, skipped (counted), or with an exception after which the state is that
// of the last committed step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "device/tensor_copy.h"
#include "measure/step_clock.h"
#include "task/task.h"
#include "train/checkpoint/interval.h"
#include "train/checkpoint/store.h"
#include "train/loop/cadence.h"
#include "train/loop/drift_watch.h"
#include "train/loop/early_stopping.h"
#include "train/loop/log_window.h"
#include "train/loop/loop_state.h"
#include "train/loop/memory_watch.h"
#include "train/loop/observer.h"
#include "train/loop/operator_watch.h"
#include "train/loop/precision_guard.h"
#include "train/loop/replay_copy.h"
#include "train/loop/step_compute.h"
#include "train/loop/step_feed.h"
#include "train/optim/ema.h"
#include "train/optim/loss_scaler.h"
#include "train/optim/optimizer.h"
#include "train/optim/parameter_rules.h"
#include "train/optim/schedule.h"

namespace redline::train {

struct EmaSettings {
  double decay = 0.999;
  int64_t every_n_steps = 1;
  bool validate_original_weights = false;
};

struct LoopSettings {
  uint64_t seed = 0;
  torch::Device device = torch::kCPU;
  bool detect_anomaly = false;

  LossScalerSettings scaler;
  PrecisionGuardSettings precision;  // the requested precision is in here
  bool memory_guard = true, check_weights = true;
  std::optional<int64_t> snapshot_every_n_steps;
  double snapshot_overhead = 0.002;

  OptimizerSettings optimizer;
  ParameterRules rules;
  Schedule schedule;
  std::optional<double> weight_decay_end;  // relative to rules.weight_decay, cosine over schedule_steps
  int64_t schedule_steps = 0;
  double clip = 0.0;
  bool clip_by_value = false;
  std::optional<EmaSettings> ema;

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

  std::optional<EarlyStoppingSettings> early_stopping;
  std::string early_metric = "val_loss";

  // For the model's arithmetic against the machine's: its measured rate (0: not measured), and how many of the data's
  // counted items make one unit of a sample's length (audio: samples per second).
  double fp32_gflops = 0, items_per_length = 1;
  int64_t process_bytes = 0;  // that the whole process may hold; 0: not watched
  int64_t intra_op_threads = 0;
  std::string config_hash;
};

struct FitResult {
  StopReason stop = StopReason::None;
  std::string early_stop;  // why, when early stopping ended the run
  int stop_signal = 0;     // of signals.h: resume continues
  int64_t steps = 0, epochs = 0;
  double last_loss = 0.0;
  std::map<std::string, double> last_validation;
};

class Trainer {
 public:
  struct Parts {
    task::Task& task;
    data::Loader& train;
    data::Loader* validation = nullptr;
    CheckpointStore* store = nullptr;
    LoopObserver* observer = nullptr;  // null: nobody listens
    device::CopyStream* stream = nullptr;
  };
  Trainer(const Parts& parts, LoopSettings settings);
  ~Trainer();

  // For a run that opens its record and its store only after load() has accepted a checkpoint.
  void attach(CheckpointStore* store, LoopObserver* observer);

  // Until a limit, early stopping or a signal. Saves at the end. Throws DivergedError, OutOfMemoryError, and what
  // loader, task or disk throw; the state is then that of the last committed step.
  FitResult fit();

  // For trials: n steps with their cadences, whatever the limits say.
  void run_steps(int64_t count);
  // Loader only: pulls and copies the batches of n steps, computes nothing.
  void run_loader(int64_t count);
  // Fetches the batches of the next steps now (as far as this epoch goes), so that those steps wait for nothing.
  void take_ahead(int64_t count);
  // Cadences left out from now on, for trials that compare with and without.
  struct LeftOut {
    bool log = false, validate = false, monitor = false, save = false;
  };
  void leave_out(const LeftOut& parts) { left_out_ = parts; }
  // One occurrence of a cadence outside a step, to see what it costs; false when this loop has none.
  bool validate_once();
  bool monitor_once();
  bool save_once();  // as a run does: where the store writes by itself, it may not be on the disk yet
  // The copy of the training state that repairs start from, taken now: memory is judged with it in place.
  void refresh_snapshot();
  const LoopSettings& settings() const { return settings_; }
  measure::StepClock& clock() { return clock_; }

  // The whole state as a checkpoint holds it. load() needs equal names and shapes and moves the loader.
  CheckpointState state() const;
  void load(const CheckpointState& state);
  // For trials: the next step is this one of this epoch; weights and everything else stay.
  void go_to(int64_t epoch, int64_t step);
  const LoopState& position() const { return state_; }
  const Optimizer& optimizer() const { return *optimizer_; }
  int64_t steps_per_epoch() const { return steps_this_epoch_; }

 private:
  struct StepOutcome {
    StepResult result;
    double learning_rate = 0, grad_norm = 0;
    uint32_t flags = 0;
    bool committed = false, stopped = false, weights_finite = true;
  };
  enum class Attempt { Done, Stopped, OutOfMemory };

  // trainer_step.cpp
  void one_step();
  StepOutcome compute_and_commit();
  Attempt attempt(Precision precision, StepOutcome& outcome);
  void add_pieces(const task::Batch& batch);
  bool is_sound(StepOutcome& outcome);
  void commit(StepOutcome& outcome);
  GuardAction on_non_finite(StepOutcome& outcome);
  void on_out_of_memory(const std::string& what);
  std::optional<std::string> damaged_after_commit(const StepOutcome& outcome) const;
  void clip_values(StepOutcome& outcome);
  void poison_for_tests();
  void advance(const StepOutcome& outcome);
  void enter_epoch(int64_t epoch, int64_t step);

  // trainer_repair.cpp
  void restore(const CheckpointState& state);
  void take_snapshot_if_due();
  bool give_back_snapshot();
  void repair(const std::string& what);
  [[noreturn]] void diverged(const std::string& why);

  // trainer.cpp
  CadenceDecision after_step(const StepOutcome& outcome, const CadencePosition& position);
  void log_step(const StepOutcome& outcome, const CadencePosition& position);
  void run_monitor(bool plot);
  std::vector<std::string> draw_plots();
  void validate_now();
  void save_if_due(const CadenceDecision& decision);
  void save(bool wait);
  void write_row(const StepOutcome& outcome);
  void event(const std::string& kind, measure::FieldList fields) const;
  void check_drift(const measure::StepRow& row);
  void check_memory(const measure::StepRow& row);
  void say_precision(const std::vector<OperatorTime>& times);

  Parts parts_;
  LoopSettings settings_;
  LoopObserver silent_;
  LoopObserver* observer_;
  measure::StepClock clock_;
  task::BatchSchema schema_;
  std::unique_ptr<Optimizer> optimizer_;
  std::vector<torch::Tensor> weights_;  // of the optimiser's parameters, detached views
  std::unique_ptr<Ema> ema_;
  std::unique_ptr<task::Monitor> monitor_;
  LossScaler scaler_;
  PrecisionGuard precision_;
  MemoryGuard memory_, validation_memory_;
  StepCompute compute_;
  StepFeed feed_;
  LeftOut left_out_;
  LoopState state_;
  int64_t steps_this_epoch_ = 0;
  bool schema_checked_ = false;
  int64_t empty_in_row_ = 0;
  StepPass pass_;
  std::vector<const task::Batch*> step_batches_;  // of the attempt, for diagnosis
  int64_t piece_rows_ = 0, piece_cost_ = 0;       // that is being computed
  ReplayCopy snapshot_;
  int64_t next_snapshot_ = 0;
  bool replaying_ = false;
  LogWindow window_;
  DriftWatch drift_;
  std::optional<MemoryWatch> memory_watch_;
  bool plots_fail_ = false;
  std::unique_ptr<EarlyStopping> early_;
  std::string early_stop_;
  int64_t validated_step_ = -1, saved_step_ = -1, save_began_step_ = 0, save_began_ns_ = 0;
  double last_loss_ = 0, step_seconds_ = 0;
  uint32_t next_flags_ = 0;
  int64_t precision_report_step_ = -1;  // the step whose operators are timed once, in a mixed-precision run
  int64_t rss_bytes_ = 0, rss_read_ns_ = 0;
  measure::StageTimes stages_seen_{};  // by the rows written so far
};

}  // namespace redline::train
