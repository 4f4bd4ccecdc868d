// Settings that run: trials kept alive so that two can take turns, each turn measured warm. A setting that fails says
// why, once, and is not tried again.
//
// Four things would falsify short turns and are dealt with here. Samples differ in length: both see the same ones, as
// far as their plans allow. Workers of a trial whose turn is over go on filling
// their queue: the next turn begins only when they have stopped. A loader-bound trial would live on what was made while
// the other ran: it first uses that up, unmeasured. And kernels are compiled for each shape when it first comes (oneDNN
// in bf16: a third of the first second's time), which a challenger would pay and the reference would not: the first
// trial of a precision and size runs for a while before it counts.
#pragma once

#include <array>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "measure/cadences.h"
#include "train/trial.h"
#include "tune/trials/job_source.h"
#include "tune/trials/memory_model.h"
#include "tune/trials/turn_cost.h"

namespace redline::tune {

struct PoolOptions {
  double turn_seconds = 0.5;
  int64_t memory_limit = 0;         // bytes of tensors a job may use
  bool limit_is_the_users = false;  // then others that are alive do not count; the machine's own limit holds for all
  std::filesystem::path journal;    // names the trial that is starting, so that one that kills the process is known
};

class TrialPool {
 public:
  TrialPool(const JobSource& jobs, PoolOptions options);
  ~TrialPool();

  // One interleaved block: seconds per sample of the whole run for both; of none when one fails, with `failure`.
  struct Block {
    std::optional<double> a, b;
    std::string failure;
    bool a_failed = false;  // not b
  };
  Block run_block(const Setting& a, const Setting& b, int block);

  // The trial of a setting, warm; throws what building and training throw.
  train::Trial& acquire(const Setting& setting);
  void drop_all();
  double turn_seconds() const { return options_.turn_seconds; }

  struct Reference {
    double samples_per_second = 0;  // without cadences
    double samples_per_step = 1, items_per_sample = 0;
    measure::PerCadence cadence_seconds;  // of one occurrence
  };
  void set_reference(const Reference& reference);
  // Runs the longest samples, a validation and a step of the setting with nothing else alive: its tensors at their
  // peak. Throws what does not fit.
  int64_t probe(const Setting& setting);
  // Doubles the rows of the longest samples at once until they no longer fit or `seconds` are over: the largest that
  // ran.
  struct LargestBatch {
    int64_t rows = 0, peak_bytes = 0;
    bool time_ended = false;
  };
  LargestBatch largest_batch(double seconds);
  std::optional<std::string> failure_of(const Setting& setting) const;
  // What compiling the steps of a setting took in this pool; 0 for packages that were in the cache.
  double compile_seconds(const Setting& setting) const;
  void mark_failed(const std::string& setting_text, const std::string& why) { failures_[setting_text] = why; }

  // While it lives, a file names the setting that runs, so that one that kills the process is known to the next call.
  class Journal {
   public:
    Journal(std::filesystem::path file, const Setting& setting);
    ~Journal();
    Journal(const Journal&) = delete;
    Journal& operator=(const Journal&) = delete;

   private:
    std::filesystem::path file_;
  };

 private:
  struct Runner;
  Runner& runner(const Setting& setting);
  Runner* find_alive(const Setting& setting);
  Runner& start(const Setting& setting);
  class Account;
  void set_limit(const Runner& r) const;
  int64_t probe_memory(Runner& r);
  void warm_up(Runner& r);
  void compile(Runner& r);
  bool hear_of_packages(const Runner& r, const train::TrialResult& result);
  void first_steps(Runner& r, bool probe);
  double cadence_seconds(const Runner& r, double step_seconds) const;
  double validation_factor(Runner& r);
  std::array<int64_t, 2> go_to_same_samples(Runner& a, Runner& b);
  TurnCost turn(Runner& r, int64_t steps);
  void settle(Runner& r);
  Block take_turns(const Setting& a, const Setting& b, int block);

  const JobSource& jobs_;
  PoolOptions options_;
  int64_t others_;                            // bytes of tensors that live outside the pool
  std::list<std::unique_ptr<Runner>> alive_;  // most recently used first
  bool reference_ran_ = false;                // then starting it again probes nothing and drops nobody
  std::map<std::string, std::string> failures_;
  // By setting and shape: seconds of a compilation that began here, once its package is in use.
  std::map<std::string, std::map<std::string, double>> compiled_;
  std::map<std::string, double> hopeless_;  // seconds per sample of settings whose first step was far slower
  Reference reference_;
  double reference_seconds_ = 0, turn_samples_ = 0;  // seconds per sample
  std::map<std::string, MemoryModel> memory_;        // by precision
  std::set<std::pair<std::string, int64_t>> warm_;   // precisions and rows that have run
  std::map<std::pair<int64_t, std::string>, double>
      validation_factors_;  // of threads and precision, to the reference's
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
