#include "doctor/scaling/overlap.h"

#include <algorithm>

namespace redline::doctor {

double exposed_seconds(std::span<const TimedBucket> buckets, double backward_seconds,
                       const std::function<double(double bytes)>& cost) {
  double free_at = 0;
  for (const TimedBucket& bucket : buckets) free_at = std::max(free_at, bucket.ready_seconds) + cost(bucket.bytes);
  return std::max(0.0, free_at - backward_seconds);
}

}  // namespace redline::doctor
