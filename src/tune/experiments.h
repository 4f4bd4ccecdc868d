// The runs the doctor asks for, made with one trial in turns: a look at a job, its ceilings, its operators and the
// stopwatch's test.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "doctor/operators.h"
#include "doctor/selftest.h"
#include "doctor/verdict.h"
#include "tune/experiments/observe.h"

namespace redline::tune {

class Experiments {
 public:
  // Builds the job and makes its first steps. A job that fails there fails here, with its own exit code.
  // `scratch` gets what the job writes; empty: a temporary folder.
  Experiments(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine,
              const std::filesystem::path& scratch = {});

  Look look(int64_t steps);
  // Interleaved blocks over the same samples, about `seconds` in all.
  std::vector<doctor::Ceiling> ceilings(const Look& look, int blocks, double seconds);
  // What limits the job, and what each change would gain by its own plans.
  doctor::Diagnosis diagnose(const Look& look, std::vector<doctor::Ceiling> ceilings);
  std::vector<doctor::OperatorLine> operators();
  doctor::SelftestRun selftest(int64_t block_steps);

  std::string config_yaml() const { return trial_->job().resolved().dump_yaml(); }

 private:
  double run_block(doctor::ExperimentKind kind, int64_t steps);

  JobSource jobs_;
  std::unique_ptr<train::Trial> trial_;
  JobView view_;
  train::CheckpointState start_;              // after the first steps: every block begins here
  std::vector<std::filesystem::path> files_;  // of the training data
};

// The job with cadences short enough that every phase occurs often in a few steps. What the user typed still wins.
config::RequestSource selftest_source(const task::Registry& registry, config::RequestSource source,
                                      const MachineFacts& machine);
// What a record's resolved config says, as far as the rules need it; what only its task knows is left at the defaults.
JobView view_of_record(const measure::RunRecord& record, const task::Registry& registry);

}  // namespace redline::tune
