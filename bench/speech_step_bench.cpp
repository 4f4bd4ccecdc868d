// Forward + backward of the NEST task at a fixed shape, without data engine, optimiser or recording: what the model's
// own kernels cost, and which share of the machine's float GEMM rate the step reaches. The peer is
// bench/speech/nemo_step.py with audio of the same kind and length. Arguments: STEPS BATCH SECONDS FUSED THREADS.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <torch/torch.h>

#include <cstdlib>

#include "core/time.h"
#include "measure/statistics.h"
#include "models/speech_ssl/options.h"
#include "models/speech_ssl/speech_ssl_task.h"
#include "speech/step_input.h"

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

int run(int argc, char** argv) {
  const auto number = [&](int index, double fallback) { return argc > index ? std::atof(argv[index]) : fallback; };
  const auto steps = static_cast<int64_t>(number(1, 5)), batch_size = static_cast<int64_t>(number(2, 8));
  const double seconds = number(3, 8.0);
  at::set_num_threads(static_cast<int>(number(5, 2)));
  torch::manual_seed(1);
  const auto task = models::speech::make_speech_ssl_task(speech_peer_options(number(4, 1) != 0), 1);
  const auto samples = static_cast<int64_t>(seconds * 16000.0);
  const task::Batch batch = speech_batch(batch_size, samples);
  const double base_mib = peak_mib();
  std::vector<double> total, forward;
  double last_loss = 0.0;
  for (int64_t step = -2; step < steps; ++step) {
    task::Context ctx(1, step + 2, true, batch.sample_ids);
    const int64_t begin = now_ns();
    const task::Loss loss = task->loss(batch, ctx);
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
  const double gflops = static_cast<double>(batch_size) * task->flops_per_sample(seconds) / ms * 1e-6;
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
