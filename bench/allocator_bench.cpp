// What the accounting allocator costs: nanoseconds per tensor, and its share of a training step of 20 M parameters, on
// against off.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "core/time.h"
#include "device/memory.h"
#include "device/threads.h"
#include "measure/statistics.h"

namespace redline::bench {
namespace {

double seconds_per_tensor(int64_t elements, int count) {
  const int64_t begin = now_ns();
  for (int i = 0; i < count; ++i) at::empty({elements});
  return seconds_between(begin, now_ns()) / count;
}

// Five square layers of 2000: 20 M parameters; forward and backward allocate as a real step does.
class Step {
 public:
  Step() {
    for (int i = 0; i < 5; ++i) weights_.push_back(at::full({2000, 2000}, 1e-4F).set_requires_grad(true));
  }
  double seconds() {
    const int64_t begin = now_ns();
    at::Tensor x = at::ones({32, 2000});
    for (const at::Tensor& weight : weights_) x = at::gelu(at::mm(x, weight));
    x.sum().backward();
    for (at::Tensor& weight : weights_) weight.mutable_grad().reset();
    return seconds_between(begin, now_ns());
  }

 private:
  std::vector<at::Tensor> weights_;
};

template <class Measure>
void compare(const std::string& name, int blocks, Measure measure_once) {
  std::vector<double> off, on;
  for (int block = 0; block < blocks; ++block) {
    double sums[2] = {};
    for (int which : measure::interleaved_order(2, block)) {
      device::memory::set_enabled(which == 1);
      sums[which] += measure_once() / 2;
    }
    off.push_back(sums[0]);
    on.push_back(sums[1]);
  }
  const measure::RatioEstimate estimate = measure::compare_blocks(off, on);
  const auto cost = [](double ratio) { return (1 / ratio - 1) * 100; };
  fmt::print("{:<34} off {:>12}  on {:>12}  cost {:+.2f} %  [{:+.2f}, {:+.2f}]\n", name,
             fmt::format("{:.1f} ns", measure::median(off) * 1e9), fmt::format("{:.1f} ns", measure::median(on) * 1e9),
             cost(estimate.ratio), cost(estimate.interval.high), cost(estimate.interval.low));
}

int run(int blocks) {
  device::memory::install();
  for (int64_t elements : {16, 4096, 1 << 20}) {
    compare(fmt::format("one tensor of {} floats", elements), blocks,
            [&] { return seconds_per_tensor(elements, 2000); });
  }
  Step step;
  step.seconds();
  compare("a step of 20 M parameters", blocks, [&] { return step.seconds(); });
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc > 1 ? std::atoi(argv[1]) : 20); }
