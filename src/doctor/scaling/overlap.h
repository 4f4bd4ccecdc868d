// Buckets of gradients that leave one after another while backward goes on: what is still on its way when it ends.
// Pure.
#pragma once

#include <functional>
#include <span>

#include "doctor/scaling/link_cost.h"

namespace redline::doctor {

struct TimedBucket {
  double bytes = 0, ready_seconds = 0;  // since backward began
};

// Seconds after the end of backward until the last bucket is back, in the given order. The link moves one bucket at a
// time; while one waits for its messages the next may move, of `lanes` at a time (c10d's Gloo: two threads). `cost` is
// that of a bucket alone.
double exposed_seconds(std::span<const TimedBucket> buckets, double backward_seconds,
                       const std::function<ReduceSeconds(double bytes)>& cost, size_t lanes = 2);

}  // namespace redline::doctor
