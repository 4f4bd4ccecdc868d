// Runs of a pair: the reference and a candidate from the same seed, weights and held-out samples, looked at on the way.
// Reference runs are kept, so that the next candidate is judged against the same ones.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "measure/time_to_loss.h"
#include "tune/proof/judged_run.h"

namespace redline::tune {

class HeldOutRuns {
 public:
  HeldOutRuns(const JobSource& jobs, JudgedRun run) : jobs_(jobs), run_(std::move(run)) {}

  const JudgedRun& run() const { return run_; }
  // Held-out losses of pair i (from 0). Throws what training throws, but a candidate that diverges has a loss that is
  // not a number.
  const measure::HeldOutCurve& reference(int pair);
  // Its loss at the end of a run of half the samples, schedules shortened along.
  double reference_half(int pair);
  // A candidate that has not reached `level` at the judged point may go on to so many times its samples, which is for
  // its time to that loss alone.
  measure::HeldOutCurve candidate(const Setting& setting, int pair, double level = 0, double longest = 1);

  // Gradient noise of the reference runs so far, by stretches of an eighth of a run.
  std::vector<measure::NoiseScale> noise() const;
  double reference_seconds() const { return reference_seconds_; }  // of the last reference run; 0: none yet
  // Negative controls put a sabotaged training here; the words are typed on top.
  std::function<measure::HeldOutCurve(const Setting& setting, int pair)> run_candidate{};
  measure::HeldOutCurve make(const JudgedRun& run, const Setting& setting, int pair, bool watch_noise, double level,
                             double longest);

 private:
  uint64_t pair_seed(const train::Job& job, int pair) const;

  const JobSource& jobs_;
  JudgedRun run_;
  std::map<int, measure::HeldOutCurve> reference_;
  std::map<int, double> halves_;
  struct Stretch {
    double gradient_squared = 0, variance = 0;
  };
  std::map<int, Stretch> noise_;  // by eighth of the run, over all reference runs
  double reference_seconds_ = 0;
};

}  // namespace redline::tune
