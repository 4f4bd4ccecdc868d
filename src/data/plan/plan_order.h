// Between drawing an epoch's order and cutting it into groups; private to the planner.
#pragma once

#include "data/plan/plan.h"

namespace redline::data {

struct Planner::Order {
  // Samples that are drawn and cut together: a shuffle window, a static bucket, or the whole epoch.
  struct Segment {
    size_t begin = 0, end = 0;
    int64_t batch_size = 0;
  };
  std::vector<uint32_t> entries;
  std::vector<Segment> segments;
  bool apart = false;       // no group crosses a segment's end
  bool mix_groups = false;  // groups of all segments in one random order
};

}  // namespace redline::data
