// Settings that run: trials kept alive so that two can take turns, each turn measured warm. A setting that fails says
// why, once, and is not tried again.
//
// Two things would falsify short turns and are dealt with here. Workers of a trial whose turn is over go on filling
// their queue: the next turn begins only when they have stopped. And a loader-bound trial would live on what was made
// while the other ran: it first uses that up, unmeasured.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "train/run/trial.h"
#include "tune/job_view.h"
#include "tune/memory_model.h"
#include "tune/objective.h"

namespace redline::tune {

struct PoolOptions {
  double turn_seconds = 0.5;
  int64_t memory_limit = 0;       // bytes of tensors a job may use; 0 = what the machine has
  std::filesystem::path journal;  // names the trial that is starting, so that one that kills the process is known
};

class TrialPool {
 public:
  TrialPool(const JobSource& jobs, PoolOptions options);
  ~TrialPool();

  // One interleaved block: seconds per sample of the whole run for both; nullopt for one that fails, with `failure`.
  struct Block {
    std::optional<double> a, b;
    std::string failure;
  };
  Block run_block(const Setting& a, const Setting& b, int block);

  // The trial of a setting, warm; throws what building and training throw.
  train::Trial& acquire(const Setting& setting);
  void drop_all();

  void set_reference(double samples_per_second, double items_per_sample, const CadenceCosts& costs);
  // The setting's own tensors at their peak over the longest samples and a validation, as far as it was probed.
  int64_t peak_bytes(const Setting& setting) const;
  std::optional<std::string> failure_of(const Setting& setting) const;
  void mark_failed(const std::string& setting_text, const std::string& why) { failures_[setting_text] = why; }
  // Whether `rows` samples at once of the longest kind fit; runs them. Only when nothing else is alive.
  const MemoryModel& memory_model() const { return memory_; }

 private:
  struct Running;
  Running& running(const Setting& setting);
  void probe_memory(Running& r, int64_t live_before);
  TurnCost turn(Running& r);
  void settle(Running& r);
  void journal(const std::string& text) const;

  const JobSource& jobs_;
  PoolOptions options_;
  std::list<std::unique_ptr<Running>> alive_;  // most recently used first
  std::map<std::string, std::string> failures_;
  std::map<std::string, double> hopeless_;  // seconds per sample of settings whose first step was far slower
  double reference_seconds_ = 0;            // per sample
  std::map<std::string, int64_t> peaks_;
  MemoryModel memory_;
  int64_t largest_rows_ = 0;
  double turn_samples_ = 0, items_per_sample_ = 0;
  CadenceCosts costs_;
};

// Nothing below a warning reaches the log while trials run, unless the user asked for more.
class QuietLog {
 public:
  QuietLog();
  ~QuietLog();

 private:
  int before_;
};

}  // namespace redline::tune
