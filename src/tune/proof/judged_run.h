// The run that both sides of a pair make: how long, judged on which held-out samples, and what that says of the job's
// own run. A run too long for the budget is shortened for both sides alike: every option that counts steps moves along,
// so the judged point is the end of a whole schedule and never lies within its warm-up.
#pragma once

#include <string>
#include <vector>

#include "core/precision.h"
#include "train/job.h"
#include "tune/trials/job_source.h"

namespace redline::tune {

struct JudgedRun {
  int64_t steps = 0;         // of the reference
  double samples = 0;        // that both have seen at the judged point
  double whole_samples = 0;  // of the job's own run
  double hold_out = 0;       // share of the training samples that is set apart; 0: the job's validation data
  int64_t held_out_batches = 0, held_out_samples = 0;  // that are looked at
  std::string metric = "val_loss";
  Precision precision = Precision::Fp32;  // of the judging, the same for both sides
  std::string held_out_words, schedule_words;

  double share() const { return whole_samples > samples ? samples / whole_samples : 1; }
};

// Fewer updates of either side show little of what they do.
inline constexpr int64_t kLeastUpdates = 20, kLeastJudgedSteps = 40;
// Steps of the reference that a judged run needs for a side whose step holds `factor` times its samples.
int64_t least_judged_steps(double factor);

// What planning needs to know of the reference.
struct JudgedRunFacts {
  double samples_per_step = 1, samples_of_run = 0;
  int64_t steps = 0;  // wanted; a run that ends before them is judged whole
};
// Opens the validation data to see how much there is. Throws DataError where there are too few samples to set any
// apart.
JudgedRun plan_judged_run(const train::Job& job, task::Task& task, const JudgedRunFacts& facts);

// What makes a job this short: words of a command line, above everything the user typed.
std::vector<std::string> shortened(const train::Job& job, const JudgedRun& run, double samples_per_step);

}  // namespace redline::tune
