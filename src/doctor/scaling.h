// What more ranks would bring: samples per second and time to loss, foretold from what a run recorded of itself. Every
// rank keeps its share of the batch, so the batch grows with the ranks (`redline scale`). Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "doctor/scaling/link_cost.h"
#include "doctor/scaling/overlap.h"
#include "measure/run_record.h"
#include "measure/statistics.h"
#include "measure/time_to_loss.h"

namespace redline::doctor {

// One recorded step of one rank.
struct ScaleStep {
  double own_seconds = 0;       // without waiting for others, and without log, validation and checkpoints
  double backward_seconds = 0;  // of its last piece
  std::vector<TimedBucket> buckets;
  double exchanges = 0, layer_sums = 0;
};

// What one step showed on all ranks that kept it.
struct RecordedStep {
  size_t first = 0, count = 0;                       // in ScaleBasis::steps, one of each rank
  std::optional<double> exchange_seconds;            // of one exchange, on the rank that came last
  std::vector<std::pair<double, double>> transfers;  // bytes and seconds of each bucket by itself
  std::vector<double> deviations;                    // as ScaleBasis::deviations
  std::optional<double> wall_seconds;                // without log, validation and checkpoints
};

struct ScaleBasis {
  int world = 1;
  double samples_per_step = 0;  // of all ranks
  std::vector<ScaleStep> steps;
  std::vector<RecordedStep> recorded;  // none for a run of one process
  // How far ranks were apart within a step: a rank's own time over their mean, less 1, widened as a few ranks ask.
  std::vector<double> deviations;
  OwnCost own;
  std::vector<measure::NoiseScale> noise;
  bool measured = false;           // a run of several ranks: buckets and costs are its own
  std::vector<std::string> notes;  // what was assumed
};
// `ranks`: the record of rank 0, then those of the others as far as they are there. Throws DataError when there are no
// steps to go by.
ScaleBasis scale_basis(std::span<const measure::RunRecord> ranks);
// What messages and bytes cost by themselves, from some of the steps of `world` ranks.
OwnCost measured_cost(std::span<const RecordedStep> steps, int world);

struct ScalePoint {
  int ranks = 1;
  double step_seconds = 0, own_seconds = 0, exposed_seconds = 0, exchange_seconds = 0;
  double samples_per_second = 0;
  measure::Interval samples_interval;  // 90 %
  double efficiency = 0;               // against as many ranks that wait for nobody
  measure::Interval efficiency_interval;
  double batch = 0;
  std::optional<double> worth;  // of a sample in that batch, against one in the recorded batch
  // Speed to the same loss against the recorded number of ranks.
  std::optional<double> faster_to_loss;
};

struct Forecast {
  std::vector<ScalePoint> points;
  // From here on twice as many ranks bring less than kWorthDoubling; 0: not up to kMostRanks.
  int stops_paying_at = 0;
  bool by_time_to_loss = false;
  double noise = 0;  // in samples, where that is known
  std::vector<std::string> notes;
  static constexpr double kWorthDoubling = 1.1;
  static constexpr int kMostRanks = 65536;
};
// `noise`: in place of the record's, in samples.
Forecast forecast_scale(const ScaleBasis& basis, const Network& network, std::span<const int> ranks,
                        std::optional<double> noise = std::nullopt);

}  // namespace redline::doctor
