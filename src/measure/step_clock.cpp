// The cost of a scope is timed in batches, since one scope is shorter than the clock's own resolution; the median batch
// is taken so that an interrupt does not count.
#include "measure/step_clock.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace redline::measure {

void StepClock::start_cpu() {
  cpu_untimed_ = 0;
  cpu_odd_ = !cpu_odd_;
  cpu_times_.fill(0);
  cpu_mark_ns_ = thread_cpu_ns();
}

void StepClock::charge_cpu(Phase spent) {
  const int64_t now = thread_cpu_ns();
  cpu_times_[static_cast<size_t>(spent)] += now - cpu_mark_ns_;
  cpu_mark_ns_ = now;
}

double calibrate_cpu_ns() {
  static const double cost = [] {
    constexpr int kBatches = 15, kReads = 32;
    std::vector<double> each;
    for (int batch = 0; batch < kBatches; ++batch) {
      const int64_t begin = now_ns();
      for (int i = 0; i < kReads; ++i) thread_cpu_ns();
      each.push_back(static_cast<double>(now_ns() - begin) / kReads);
    }
    std::nth_element(each.begin(), each.begin() + kBatches / 2, each.end());
    return each[kBatches / 2];
  }();
  return cost;
}

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

int64_t sampling_interval(int64_t scopes, double scope_ns, double step_ns, double most_share) {
  if (step_ns <= 0) return 1;
  const double share = static_cast<double>(scopes) * scope_ns / step_ns;
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share / most_share)));
}

}  // namespace redline::measure
