// A job as the rules see it: the switches its option rows declare, their values, and what its task says about itself.
// Doctor and tuner judge by the same view.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/describe.h"

namespace redline::doctor {

struct JobView {
  std::string task;
  std::vector<config::SearchDimension> switches;  // every option that may be tuned, from the rows
  std::set<std::string> pinned;                   // options typed by the user: kept
  bool has_cuda = false;

  // From the switches (read_switches).
  int64_t batch_size = 1, micro_batch_size = 1, accumulate = 1;
  std::string precision = "32-true";
  int workers = 0, threads = 1, prefetch = 2, num_buckets = 1;
  bool buckets = false, dynamic_padding = true, tarred = false, fast_decode = false, pin_memory = false;
  std::string cache = "none", compile = "false";
  int64_t log_every_n_steps = 50, monitor_every = 0, monitor_every_epochs = 0;
  std::optional<int64_t> val_check_batches, save_every_steps;

  // From the task.
  bool batch_statistics = false, supports_channels_last = false, channels_last = false, computes_padding = true;
  bool ragged = true, images = false;
  std::string compile_refusal;  // why its step cannot be compiled; empty: it can

  // Other values that move along with a batch (tune/search/companions.h), or bound what is worth trying.
  bool bounded_by_length = false;
  int64_t max_steps = -1, max_iters = 0, max_epochs = -1;
  // Options that count steps or batches, from the rows.
  struct Counted {
    std::string path;
    config::Counts counts = config::Counts::Steps;
    int64_t value = 0;
    bool cadence = false;  // may be rounded
  };
  std::vector<Counted> counted;
  std::vector<std::string> bound_to_batch;  // options that no other batch can keep the meaning of (TaskConfig)
  std::string optimizer = "adamw", scale_lr = "none";
  double min_lr = 0, ema_decay = 0;          // 0: none
  int64_t samples = 0, steps_per_epoch = 0;  // of an epoch; 0: not known

  int64_t effective_batch() const { return batch_size * accumulate; }
  int64_t steps() const;  // of the whole run; 0: no end is known
  // The switch that a rule moves; null where the job has none.
  const config::SearchDimension* switch_of(const std::string& rule) const;
  // Its path; empty where there is none.
  std::string path(const std::string& rule) const;
};

// Whether doctor/rules has a rule of that name. A row that names another is a mistake of ours.
bool is_rule(const std::string& name);

// The members above, from the switches' values. Throws InternalError when a row names a rule that is not there.
void read_switches(JobView& job);

}  // namespace redline::doctor
