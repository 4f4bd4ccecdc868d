// The runs the doctor asks for, made with one trial in turns: observing a job, its ceilings, and the self-test. Wiring
// between rooms that do not see each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "app/print_selftest.h"
#include "doctor/ceilings.h"
#include "doctor/observation.h"
#include "doctor/selftest.h"
#include "report/page.h"
#include "train/trial.h"
#include "tune/objective.h"

namespace redline::app {

class DoctorRuns {
 public:
  // Builds the job and makes its first steps. A job that fails there fails here, with its own exit code.
  // `scratch` gets what the job writes; empty: a temporary folder.
  DoctorRuns(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine,
             const std::filesystem::path& scratch = {});

  struct Watched {
    std::vector<measure::StepRow> rows;
    doctor::Observation seen;  // cadences amortised over the whole run, own cost taken out
  };
  Watched observe(int64_t steps);
  // Interleaved blocks over the same samples, about `seconds` in all.
  std::vector<doctor::Ceiling> ceilings(const doctor::Observation& seen, int blocks, double seconds);
  std::vector<report::OperatorLine> operators();
  SelftestRun selftest(int64_t block_steps);

  doctor::Settings settings() const;
  std::string config_yaml() const { return trial_->job().resolved().dump_yaml(); }

 private:
  void price_cadences(doctor::Observation& seen);
  double log_seconds(const doctor::Observation& seen);
  double run_block(doctor::ExperimentKind kind, int64_t steps);

  MachineFacts machine_;
  std::unique_ptr<train::Trial> trial_;
  train::CheckpointState start_;  // after the first steps: every block begins here
  tune::CadenceRates rates_;
  std::vector<std::filesystem::path> files_;                  // of the training data
  std::vector<double> validations_, monitors_, checkpoints_;  // seconds of single occurrences
};

// The job with cadences short enough that every phase occurs often in a few steps. What the user typed still wins.
config::RequestSource selftest_source(const task::Registry& registry, config::RequestSource source,
                                      const MachineFacts& machine);
// What a record's resolved config says, as far as the rules need it.
doctor::Settings settings_of_record(const measure::RunRecord& record, const task::Registry& registry);

}  // namespace redline::app
