// Notices when steps have become slower than the run's own start and says which phase moved. Pure: fed with step rows.
//
// The yardstick is the median of the first window after warm-up; a later window counts when its median is slower by
// `ratio`, and only a second one in a row is reported, so that one validation-sized pause or a noisy minute is not
// news. Phases that run at a cadence (log, validate, checkpoint) are left out of both: they are not drift.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "measure/run_record.h"

namespace redline::train {

struct DriftReport {
  double ratio = 1.0;  // now / start, of a step without cadence phases, per sample
  double start_seconds = 0, now_seconds = 0;
  measure::Phase phase = measure::Phase::Other;  // that grew most
  double phase_start_seconds = 0, phase_now_seconds = 0;
};

class DriftWatch {
 public:
  explicit DriftWatch(double ratio = 1.25, int64_t warmup = 10, int64_t window = 50)
      : ratio_(ratio), warmup_(warmup), window_(window) {}
  std::optional<DriftReport> add(const measure::StepRow& row);
  // The last window over the run's start, less 1; nullopt before there are two.
  std::optional<double> drift() const { return drift_; }

 private:
  struct Window {
    double total = 0;
    std::array<double, measure::kNumPhases> phases{};
  };
  Window summarise();

  double ratio_;
  int64_t warmup_, window_;
  int64_t seen_ = 0;
  std::vector<measure::StepRow> rows_;
  std::optional<Window> start_;
  std::optional<double> drift_;
  int slow_in_row_ = 0;
};

}  // namespace redline::train
