// What it costs to resume at any step of an epoch of a million samples: making that epoch's plan again and splitting
// one step of it. The position is four integers, so nothing is replayed. The last line on stdout is JSON.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/philox.h"
#include "core/time.h"
#include "data/plan/plan.h"
#include "data/plan/step_split.h"

using namespace redline;
using namespace redline::data;

namespace {

constexpr int64_t kSamples = 1'000'000;

// Median milliseconds over random epochs and steps.
double resume_ms(const Planner& planner, const std::function<double(int64_t)>& length) {
  std::vector<double> times;
  for (uint64_t round = 0; round < 15; ++round) {
    KeyedStream draw(1, round, 0, 0);
    const int64_t epoch = draw.uniform_int(0, 50), begin = now_ns();
    const auto plan = planner.epoch(epoch);
    const StepSplit split = split_step(*plan, draw.uniform_int(0, plan->num_steps() - 1), {}, length);
    if (split.num_micro_batches() == 0) std::abort();
    times.push_back(1e3 * seconds_between(begin, now_ns()));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  const auto length = [](int64_t i) {
    return 1.0 + static_cast<double>(mix_key(7, static_cast<uint64_t>(i)) % 2000) / 100;
  };
  PlanSettings plain{.seed = 5, .shuffle = true, .batch_size = 16};
  PlanSettings buckets = plain;
  buckets.num_buckets = 16;
  const auto planner_of = [&](const PlanSettings& settings) {
    return Planner(settings, PlanSource{kSamples, length, {}, 1});
  };
  const Planner a = planner_of(plain), b = planner_of(buckets);
  std::printf("{\"samples\": %lld, \"resume_ms\": %.3f, \"resume_with_buckets_ms\": %.3f}\n",
              static_cast<long long>(kSamples), resume_ms(a, length), resume_ms(b, length));
  return 0;
}
