// How the exchange of gradients of one step went on one rank: when each bucket was ready, when it was back, and how
// long backward had to wait at its end. An event of the run record; the forecast for more ranks starts from these.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "measure/run_record.h"

namespace redline::measure {

struct BucketTimes {
  int64_t bytes = 0;                  // on the wire
  int64_t ready_ns = 0, done_ns = 0;  // since the last backward of the step began
};

struct ReduceTimeline {
  int64_t step = 0;
  std::vector<BucketTimes> buckets;  // in the order in which they went out
  int64_t backward_ns = 0;           // until the last bucket was ready: what is left is waiting
  int64_t end_ns = 0;                // until all were back and in place
  int64_t own_ns = 0;                // the whole step less what it waited for other ranks, and less its cadences
  // Exchanges of a few numbers that the step waited for, and those inside layers (SyncBatchNorm).
  int64_t exchanges = 0, exchange_ns = 0;
  int64_t layer_sums = 0, layer_sum_ns = 0;
  int64_t samples = 0;  // of this rank
  // Of the gradients, where the step was asked: estimates of the squared length of the true one and of the summed
  // variance of one sample's (train/step/noise_watch.h).
  std::optional<double> gradient_squared, variance;

  int64_t bytes() const;
  int64_t exposed_ns() const;     // in flight while backward had nothing left to do
  int64_t overlapped_ns() const;  // in flight beside backward; buckets at the same time count once
};

// Size of a bucket of `total` bytes of gradients under a limit: about a tenth of them, so that most have left when
// backward ends, and a mebibyte at least, so that messages stay few. The first one is a mebibyte.
inline constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;
int64_t bucket_bytes(int64_t total, int64_t limit);

inline constexpr const char* kReduceTimelineEvent = "ranks.timeline";
FieldList timeline_fields(const ReduceTimeline& timeline);
// nullopt for another event, and for one that does not hold a timeline.
std::optional<ReduceTimeline> timeline_of(const Event& event);

}  // namespace redline::measure
