// Forward + backward of the ConvNeXt task at a fixed input, without data engine, optimiser or recording: what the
// model's own kernels cost, and which share of the machine's float GEMM rate the step reaches. The peer is
// bench/convnext/timm_step.py. Arguments: STEPS small|tiny FUSED THREADS [32|bf16].
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdlib>
#include <cstring>

#include "core/time.h"
#include "measure/statistics.h"
#include "models/convnext/task.h"

namespace redline::bench {
namespace {

models::convnext::Options peer_options(bool tiny, bool fused) {
  models::convnext::Options o;
  o.num_classes = tiny ? 1000 : 10;
  o.image_size = tiny ? 224 : 64;
  if (tiny) {
    o.dims = {96, 192, 384, 768};
    o.depths = {3, 3, 9, 3};
  }
  o.fused_kernels = fused;
  return o;
}

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

int run(int argc, char** argv) {
  const auto number = [&](int index, int64_t fallback) { return argc > index ? std::atoll(argv[index]) : fallback; };
  const int64_t steps = number(1, 5);
  const bool tiny = argc > 2 && std::strcmp(argv[2], "tiny") == 0, low = argc > 5 && std::strcmp(argv[5], "bf16") == 0;
  at::set_num_threads(static_cast<int>(number(4, 2)));
  torch::manual_seed(1);
  const models::convnext::Options options = peer_options(tiny, number(3, 1) != 0);
  const auto task = models::convnext::make_convnext_task(options, 1);
  const int64_t batch_size = tiny ? 8 : 32;
  task::Batch batch;
  for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
  batch.tensors["images"] =
      torch::randn({batch_size, 3, options.image_size, options.image_size}).contiguous(at::MemoryFormat::ChannelsLast);
  batch.tensors["labels"] = torch::arange(batch_size, torch::kInt64).remainder(options.num_classes);
  for (torch::Tensor& parameter : task->module().parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(at::MemoryFormat::ChannelsLast));
  const double base_mib = peak_mib();
  std::vector<double> total, forward;
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
    const int64_t end = now_ns();
    last_loss = loss.value.item<double>();
    for (torch::Tensor& parameter : task->module().parameters()) parameter.mutable_grad().reset();
    if (step < 0) continue;
    total.push_back(seconds_between(begin, end) * 1e3);
    forward.push_back(seconds_between(begin, middle) * 1e3);
  }
  const double peak = peak_mib(), ms = measure::median(total), rate = gemm_gflops();
  const double gflops = static_cast<double>(batch_size) * task->flops_per_sample(1.0) / ms * 1e-6;
  fmt::print(
      "{{\"step_ms\": {:.2f}, \"forward_ms\": {:.2f}, \"backward_ms\": {:.2f}, \"gflops\": {:.1f}, \"gemm_gflops\": "
      "{:.1f}, \"share_of_gemm_rate\": {:.3f}, \"step_mib\": {:.1f}, \"peak_mib\": {:.1f}, \"loss\": {:.4f}}}\n",
      ms, measure::median(forward), ms - measure::median(forward), gflops, rate, gflops / rate, peak - base_mib, peak,
      last_loss);
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc, argv); }
