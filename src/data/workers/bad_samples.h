// The record of samples that could not be used, and the rule when to stop. Fed in plan order by the consumer, so that
// the file, the counts and the stop are the same for any number of workers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_set>

#include "data/workers/sample_chain.h"
#include "measure/kept_writes.h"

namespace redline::data {

struct BadSampleLimits {
  double max_fraction = 0.05;  // of the data set, and of what was delivered once that is at least 1,000
  int max_in_a_row = kMaxSubstitutes;
};

class BadSampleLog {
 public:
  // `file` may be empty (only count). Samples already in the file (an earlier start of the run) are not written again.
  BadSampleLog(std::filesystem::path file, int64_t num_samples, BadSampleLimits limits, int rank = 0);

  // One delivered row: what was tried before it. Throws DataError over a limit; a line that cannot be written
  // waits (measure/kept_writes.h).
  void row(const std::vector<BadEvent>& bad, int64_t epoch, int64_t step);
  void good_rows(int64_t count) {
    delivered_ += count;
    if (count > 0) in_a_row_ = 0;
  }

  int64_t num_bad() const { return num_bad_; }  // events, repeats included
  int64_t num_distinct() const { return static_cast<int64_t>(known_.size()); }

 private:
  void write(const BadEvent& event, int64_t epoch, int64_t step);
  void check(const BadEvent& event) const;

  std::filesystem::path file_;
  int64_t num_samples_;
  BadSampleLimits limits_;
  int rank_;
  std::unordered_set<int64_t> known_;
  int64_t num_bad_ = 0, delivered_ = 0;
  int in_a_row_ = 0, named_ = 0;
  std::unique_ptr<measure::KeptWrites> kept_ = std::make_unique<measure::KeptWrites>();
};

}  // namespace redline::data
