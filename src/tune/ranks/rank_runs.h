// Short runs of a job as processes of their own, and what their records say.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "tune/rank_tuning.h"

namespace redline::tune {

struct RankRun {
  double seconds_per_sample = 0;  // of the steps after the first ones
  double samples_per_step = 0;
  std::vector<double> losses;      // of all steps
  std::optional<double> held_out;  // the last validation's, where one was asked for
  double gradient_bytes = 0;
  std::string failure;  // empty: it came to its end
};

// Pure: what a record shows, the first `warm_up` steps left out of the speed, and log, validation and checkpoints.
RankRun read_rank_run(const measure::RunRecord& record, const std::string& metric, int64_t warm_up);

class RankRuns {
 public:
  RankRuns(const RankTuneRequest& request, int ranks_of_job, std::string metric)
      : request_(request), ranks_of_job_(ranks_of_job), metric_(std::move(metric)) {}

  // `more`: further words, after the setting's.
  RankRun run(const Setting& setting, int64_t steps, const std::vector<std::string>& more = {}) const;
  // With its held-out loss at the end, from a seed; `steps` 0: that of the weights it begins with.
  RankRun judged(const Setting& setting, int64_t steps, int64_t seed) const;

  static constexpr int64_t kWarmUp = 4;  // buckets are made anew after the first step

 private:
  RankRun start(const Setting& setting, const std::vector<std::string>& more) const;

  const RankTuneRequest& request_;
  int ranks_of_job_;
  std::string metric_;
};

}  // namespace redline::tune
