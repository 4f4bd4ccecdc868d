// Which switches to try on a job and what each is expected to gain: from the job's values, one observed stretch of it
// and the machine's rates. Pure.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/machine_facts.h"
#include "tune/plan_model.h"

namespace redline::tune {

inline constexpr const char* kBatchPath = "model.train_ds.batch_size";
inline constexpr const char* kMicroPath = "model.train_ds.micro_batch_size";
inline constexpr const char* kAccumulatePath = "trainer.accumulate_grad_batches";
inline constexpr const char* kThreadsPath = "trainer.intra_op_threads";
inline constexpr const char* kValidationPath = "trainer.val_check_interval";
inline constexpr const char* kSavePath = "exp_manager.checkpoint_callback_params.every_n_train_steps";

// What the user lets the tuner change besides speed. Rounding (threads, micro-batches) needs no word: it is proved.
struct Allow {
  bool numerics = false, order = false, optimisation = false;
};
// "numerics,order"; throws ConfigError on another word.
Allow parse_allow(const std::string& text);

// A tunable option that is on or off and has no rule of its own: tried the other way round.
struct Toggle {
  std::string path;
  bool on = false;
  config::Effect effect = config::Effect::Nothing;
};
// Whether a rule of make_candidates or cadence_candidates moves this option (the last part of its path).
bool has_rule(const std::string& option);

// The job's values that switches start from.
struct JobView {
  std::string task;
  int64_t batch_size = 1, micro_batch_size = 1, accumulate = 1;
  bool batch_statistics = false, bounded_by_length = false, supports_channels_last = false, channels_last = false;
  std::string precision = "32-true";
  int workers = 0, threads = 1, prefetch = 2;
  bool computes_padding = true;
  bool buckets = false, dynamic_padding = true, ragged = true, tarred = false, images = false, fast_decode = false;
  int num_buckets = 1;
  std::string cache = "none";
  bool pin_memory = false;
  int64_t log_every_n_steps = 50, max_steps = -1, max_iters = 0, max_epochs = -1;
  std::optional<int64_t> val_check_batches, warmup_steps, schedule_steps, constant_steps;
  std::string optimizer = "adamw", scale_lr = "none";
  bool monitors = false;
  int64_t monitor_every = 0;
  std::optional<int64_t> save_every_steps, save_every_batches;
  std::optional<int64_t> limit_train_batches;  // of an epoch, as a count
  int64_t samples = 0, steps_per_epoch = 0;    // of an epoch
  std::vector<Toggle> toggles;
  std::set<std::string> pinned;  // options typed by the user: kept
  bool has_cuda = false;
  int64_t effective_batch() const { return batch_size * accumulate; }
};

// The job's step in pieces of four times the rows; nullopt for one whose batches are bounded by length.
std::optional<Setting> larger_pieces(const JobView& job);
// A setting in length buckets; nullopt for a job that has nothing to gain from them or may not use them.
std::optional<Setting> in_buckets(const JobView& job, const Allow& allow, const Setting& setting);
// The most promising other precision for this machine's rates, with its switch; nullopt where none may gain or be used.
std::optional<Setting> other_precision(const JobView& job, const MachineFacts& machine, const Allow& allow);
// Whether weights are rounded for every piece under that switch and are not now (1), or the other way round (-1).
int casts_added(const JobView& job, const Setting& precision);
// The other end of the threads: one, or all cores for a job that has one; nullopt where there is only one core.
std::optional<int> other_threads(const JobView& job, const MachineFacts& machine);

std::vector<Candidate> make_candidates(const JobView& job, const Observed& observed, const MachineFacts& machine,
                                       const Allow& allow, const PlanModel& plans);

// Cadences that cost more than `share` of the time, set to what stays below it; in a run that validates or saves,
// at least twice.
std::vector<Candidate> cadence_candidates(const JobView& job, const Observed& observed, double share);

}  // namespace redline::tune
