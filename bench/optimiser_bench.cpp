// The optimiser step at 20 M parameters: redline's (check, norm, fused step) against torch::optim::AdamW. Bar: at least
// 5 times faster. With a variant (torch, redline, clipped) and seconds it only repeats that
// one and prints JSON, for bench/workloads/optimiser.py, which adds Python's fused AdamW.
#include <torch/optim/adamw.h>
#include <torch/torch.h>

#include <functional>

#include "core/strings.h"
#include "interleave.h"
#include "train/optim/gradients.h"
#include "train/optim/optimizer.h"

namespace redline::bench {
namespace {

std::vector<torch::Tensor> make_parameters() {
  std::vector<torch::Tensor> parameters;
  for (int i = 0; i < 16; ++i) {  // 16 layers of a 512-wide transformer: 1.25 M each
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{512, 512}, {512}, {1024, 512}, {1024}, {512, 896}, {512}}) {
      parameters.push_back((torch::randn(shape) * 0.02).requires_grad_(true));
      parameters.back().mutable_grad() = torch::randn(shape) * 1e-3;
    }
  }
  return parameters;
}

train::Optimizer make_optimizer(const std::vector<torch::Tensor>& parameters) {
  std::vector<train::OptimizedParameter> named;
  for (size_t i = 0; i < parameters.size(); ++i) named.push_back({fmt::format("p{}", i), parameters[i], 1.0, 0.01});
  return {train::OptimConfig{}, named};
}

// The median of steps made for so many seconds, as JSON for workloads/optimiser.py.
int print_json(double seconds, const std::function<void()>& step) {
  std::vector<double> times;
  const int64_t begin = now_ns();
  while (seconds_between(begin, now_ns()) < seconds) {
    const int64_t start = now_ns();
    step();
    times.push_back(seconds_between(start, now_ns()));
  }
  fmt::print("{{\"step_seconds\": {}}}\n", measure::median(times));
  return 0;
}

int print_one(const std::string& which, double seconds) {
  const auto parameters = make_parameters();
  if (which == "torch") {
    torch::optim::AdamW reference(parameters, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
    return print_json(seconds, [&] { reference.step(); });
  }
  train::Optimizer optimizer = make_optimizer(parameters);
  if (which == "redline") return print_json(seconds, [&] { optimizer.step(1e-3, 1.0); });
  // As in a run that clips: norm and check first, the divisor applied on the way.
  return print_json(seconds, [&] {
    const train::GradientCheck check = train::check_gradients(optimizer.gradients());
    optimizer.step(1e-3, 1.0 / train::clip_factor(check.norm, 1e-3));
  });
}

void compare_all() {
  const auto a = make_parameters(), b = make_parameters();
  int64_t count = 0;
  for (const torch::Tensor& p : a) count += p.numel();
  torch::optim::AdamW reference(a, torch::optim::AdamWOptions(1e-3).weight_decay(0.01));
  train::Optimizer optimizer = make_optimizer(b);
  fmt::print("{:.1f} M parameters in {} tensors, {} threads\n", static_cast<double>(count) * 1e-6, a.size(),
             at::get_num_threads());
  const auto bare = [&] { optimizer.step(1e-3, 1.0); };
  const auto guarded = [&] {
    const train::GradientCheck check = train::check_gradients(optimizer.gradients());
    optimizer.step(1e-3, 1.0 / train::clip_factor(check.norm, 1e9));
  };
  print_comparison("AdamW step", "torch::optim", "redline", compare([&] { reference.step(); }, bare, 8, 2));
  print_comparison("AdamW step with norm, check and clipping", "torch::optim", "redline",
                   compare([&] { reference.step(); }, guarded, 8, 2));
  print_comparison("what norm, check and clipping add", "clipped", "bare", compare(guarded, bare, 8, 3));
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) {
  if (argc == 3) return redline::bench::print_one(argv[1], redline::parse_double(argv[2]).value_or(2));
  redline::bench::compare_all();
  return 0;
}
