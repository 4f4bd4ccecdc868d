#include "doctor/scaling/overlap.h"

#include <algorithm>
#include <vector>

namespace redline::doctor {

double exposed_seconds(std::span<const TimedBucket> buckets, double backward_seconds,
                       const std::function<ReduceSeconds(double bytes)>& cost, size_t lanes) {
  std::vector<double> done;
  double link_free = 0, last = 0;
  for (size_t i = 0; i < buckets.size(); ++i) {
    const ReduceSeconds seconds = cost(buckets[i].bytes);
    const double lane_free = i >= lanes ? done[i - lanes] : 0;
    link_free = std::max({buckets[i].ready_seconds, lane_free, link_free}) + seconds.moving;
    done.push_back(link_free + seconds.messages);
    last = std::max(last, done.back());
  }
  return std::max(0.0, last - backward_seconds);
}

}  // namespace redline::doctor
