// The runs the doctor asks for, made with train's trials: observing a job, its ceilings, and the self-test. Wiring
// between rooms that do not see each other.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "doctor/ceilings.h"
#include "doctor/observation.h"
#include "doctor/selftest.h"
#include "train/run/trial.h"

namespace redline::app {

class DoctorRuns {
 public:
  DoctorRuns(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine);

  std::vector<measure::StepRow> observe(int64_t steps);
  std::vector<doctor::Ceiling> ceilings(const doctor::Observation& seen, int blocks);
  doctor::SelftestResult selftest(int64_t steps);
  doctor::Settings settings() const;
  std::string config_yaml() const;
  void print_operators(const MachineFacts& machine);

 private:
  train::Trial& trial(doctor::ExperimentKind kind);
  const task::Registry& registry_;
  config::RequestSource source_;
  MachineFacts machine_;
  std::vector<std::pair<doctor::ExperimentKind, std::unique_ptr<train::Trial>>> trials_;
};

// The job with cadences short enough that every phase occurs often in a few steps.
config::RequestSource selftest_source(config::RequestSource source);
// What a record's resolved config says, as far as the rules need it.
doctor::Settings settings_of_record(const measure::RunRecord& record);

}  // namespace redline::app
