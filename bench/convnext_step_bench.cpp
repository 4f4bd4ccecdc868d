// A training step of the ConvNeXt task at a fixed input, without data engine or recording: forward, backward, the check
// of the gradients that every run makes, AdamW and the release of the gradients; and which share of the machine's float
// GEMM rate forward and backward reach. The peer is bench/convnext/timm_step.py. Arguments: STEPS small|tiny FUSED
// THREADS [32|bf16].
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <fstream>

#include "convnext/step_input.h"
#include "core/time.h"
#include "measure/statistics.h"
#include "models/convnext/task.h"
#include "train/optim/gradients.h"
#include "train/optim/optimizer.h"

namespace redline::bench {
namespace {

double gemm_gflops() {
  const torch::Tensor a = torch::randn({1024, 1024}), b = torch::randn({1024, 1024});
  std::vector<double> seconds;
  for (int i = 0; i < 12; ++i) {
    const int64_t begin = now_ns();
    const torch::Tensor c = torch::mm(a, b);
    if (i >= 2) seconds.push_back(seconds_between(begin, now_ns()));
  }
  return 2.0 * 1024.0 * 1024.0 * 1024.0 / measure::median(seconds) * 1e-9;
}

double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024.0;
}

// Of now, not the peak; what was freed is given back first.
double resident_mib() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  double pages = 0.0;
  file >> pages >> pages;
  return pages / 256.0;
}

train::Optimizer make_optimizer(torch::nn::Module& module) {
  std::vector<train::OptimizedParameter> named;
  for (const auto& item : module.named_parameters()) named.push_back({item.key(), item.value(), 1.0, 0.05});
  return {train::OptimConfig{}, named};
}

int run(int argc, char** argv) {
  const auto number = [&](int index, int64_t fallback) { return argc > index ? std::atoll(argv[index]) : fallback; };
  const int64_t steps = number(1, 5);
  const bool tiny = argc > 2 && std::strcmp(argv[2], "tiny") == 0, low = argc > 5 && std::strcmp(argv[5], "bf16") == 0;
  at::set_num_threads(static_cast<int>(number(4, 2)));
  torch::manual_seed(1);
  const models::convnext::Options options = convnext_peer_options(tiny, number(3, 1) != 0);
  const auto task = models::convnext::make_convnext_task(options, 1);
  const int64_t batch_size = tiny ? 8 : 32;
  const task::Batch batch = convnext_batch(options, batch_size);
  for (torch::Tensor& parameter : task->module().parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  train::Optimizer optimizer = make_optimizer(task->module());
  // Weights and moments are the run's; what a step takes comes on top (gradients and what backward keeps).
  const double base_mib = resident_mib();
  std::vector<double> total, forward, backward;
  double last_loss = 0.0;
  for (int64_t step = -2; step < steps; ++step) {
    task::Context ctx(1, step + 2, true, batch.sample_ids);
    const int64_t begin = now_ns();
    at::autocast::set_autocast_enabled(at::kCPU, low);
    at::autocast::set_autocast_dtype(at::kCPU, torch::kBFloat16);
    const task::Loss loss = task->loss(batch, ctx);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    const int64_t middle = now_ns();
    loss.value.backward();
    const int64_t computed = now_ns();
    const train::GradientCheck check = train::check_gradients(optimizer.gradients());
    optimizer.step(1e-3, 1.0);
    optimizer.clear_gradients();
    const int64_t end = now_ns();
    last_loss = loss.value.item<double>();
    if (step < 0 || !check.finite) continue;
    total.push_back(seconds_between(begin, end) * 1e3);
    forward.push_back(seconds_between(begin, middle) * 1e3);
    backward.push_back(seconds_between(middle, computed) * 1e3);
  }
  const double peak = peak_mib(), ms = measure::median(total), rate = gemm_gflops();
  const double forward_ms = measure::median(forward), backward_ms = measure::median(backward);
  const double gflops =
      static_cast<double>(batch_size) * task->flops_per_sample(1.0) / (forward_ms + backward_ms) * 1e-6;
  fmt::print(
      "{{\"step_ms\": {:.2f}, \"forward_ms\": {:.2f}, \"backward_ms\": {:.2f}, \"optimiser_ms\": {:.2f}, \"gflops\": "
      "{:.1f}, \"gemm_gflops\": {:.1f}, \"share_of_gemm_rate\": {:.3f}, \"step_mib\": {:.1f}, \"peak_mib\": {:.1f}, "
      "\"loss\": {:.4f}}}\n",
      ms, forward_ms, backward_ms, ms - forward_ms - backward_ms, gflops, rate, gflops / rate, peak - base_mib, peak,
      last_loss);
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
