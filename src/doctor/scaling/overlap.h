// Buckets of gradients that leave one after another while backward goes on: what is still on its way when it ends.
// Pure.
#pragma once

#include <functional>
#include <span>

namespace redline::doctor {

struct TimedBucket {
  double bytes = 0, ready_seconds = 0;  // since backward began
};

// Seconds after the end of backward until the last bucket is back. One bucket at a time, in the given order; `cost` is
// that of a bucket alone.
double exposed_seconds(std::span<const TimedBucket> buckets, double backward_seconds,
                       const std::function<double(double bytes)>& cost);

}  // namespace redline::doctor
