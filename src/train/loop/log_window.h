// Sums between two log lines: means weighted as the loss is, rates over wall time. Plain arithmetic; times come from
// outside. The sums outlive the process (checkpoint); times and what they count are of this process only.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "data/loader.h"
#include "measure/phases.h"
#include "train/loop/loop_state.h"
#include "train/step/step_verdict.h"

namespace redline::train {

class LogWindow {
 public:
  // Steps that were not committed only count their samples.
  void add(const StepVerdict& step);
  void add_phases(const measure::PhaseTimes& phases);  // of a finished step

  struct Now {
    int64_t now_ns = 0, process_cpu_ns = 0;
    measure::PhaseTimes running{};  // of the step that is not finished yet
    data::LoaderStats loader;
  };
  // Means and rates since the last reset; names of the metric table.
  std::map<std::string, double> values(const Now& now) const;
  void reset(const Now& now);
  // Rates count from here; the sums stay.
  void start_clock(const Now& now);
  const LogSums& sums() const { return sums_; }
  void restore(const LogSums& sums) { sums_ = sums; }
  double items_per_sample() const {
    return sums_.samples > 0 ? static_cast<double>(sums_.items) / static_cast<double>(sums_.samples) : 0.0;
  }

 private:
  LogSums sums_;
  int64_t timed_steps_ = 0, timed_samples_ = 0;
  measure::PhaseTimes phases_{};
  int64_t begin_ns_ = 0, begin_cpu_ns_ = 0;
  measure::StageTimes begin_stages_{};
};

}  // namespace redline::train
