// The cost of a scope is timed in batches, since one scope is shorter than the clock's own resolution; the median batch
// is taken so that an interrupt does not count.
#include "measure/step_clock.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace redline::measure {

double calibrate_scope_ns() {
  static const double cost = [] {
    constexpr int kBatches = 31, kScopes = 256;
    StepClock clock;
    clock.begin_step();
    std::vector<double> per_scope;
    for (int batch = 0; batch < kBatches; ++batch) {
      const int64_t begin = now_ns();
      for (int i = 0; i < kScopes; ++i) {
        const PhaseScope scope(clock, Phase::Forward);
      }
      per_scope.push_back(static_cast<double>(now_ns() - begin) / kScopes);
    }
    std::nth_element(per_scope.begin(), per_scope.begin() + kBatches / 2, per_scope.end());
    return per_scope[kBatches / 2];
  }();
  return cost;
}

int64_t sampling_interval(int64_t scopes, double scope_ns, double step_ns) {
  constexpr double kMostShare = 0.01;
  if (step_ns <= 0) return 1;
  const double share = static_cast<double>(scopes) * scope_ns / step_ns;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share / kMostShare)));
}

}  // namespace redline::measure
