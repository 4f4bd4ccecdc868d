// Two run records compared as a gate: no regression, regression (and which phase), or too noisy to say. Judged on
// seconds per sample in blocks of neighbouring steps (steps in a row are not independent), with a bootstrap interval
// that must lie wholly on one side of the limit.
#pragma once

#include <string>
#include <vector>

#include "doctor/change.h"
#include "doctor/observation.h"
#include "measure/run_record.h"
#include "measure/statistics.h"

namespace redline::doctor {

enum class GateResult { NoRegression = 0, Regression = 1, TooNoisy = 2 };

struct RunComparison {
  GateResult result = GateResult::TooNoisy;
  Observation before, after;
  measure::RatioEstimate speed;   // of `after` against `before`: > 1 is faster
  double fail_on = 0;             // allowed loss, e.g. 0.03
  double detectable_loss = 0;     // half the interval's width: smaller losses cannot be seen in these records
  std::vector<PartChange> moved;  // parts that grew, per sample, culprit first
  std::string sentence;
};

// Throws DataError when the runs cannot be compared (no steps, other task, other effective batch), with what differs.
RunComparison compare_runs(const measure::RunRecord& before, const measure::RunRecord& after, double fail_on);

}  // namespace redline::doctor
