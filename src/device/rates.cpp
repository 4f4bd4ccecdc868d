// Each probe starts with a problem that takes microseconds at normal speed and grows it while the time allows, so an
// operation that is a thousand times slower than expected still ends in time. The fastest run counts: a ceiling is what
// the machine can do undisturbed.
#include "device/rates.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "core/time.h"
#include "device/host/busy_cores.h"
#include "device/profile.h"
#include "device/threads.h"

namespace redline::device {
namespace {

// One problem of a family: `scale` grows it. Returns its work and a closure that runs it once.
struct RateProblem {
  double work;
  std::function<void()> run;
};
using MakeProblem = std::function<RateProblem(int scale)>;

struct RateProbe {
  const char* name;
  double* slot;
  MakeProblem make;
  int largest_scale;
  std::optional<RateProblem> problem;  // of the scale that fits the time; empty when LibTorch has no such kernel
  double best = 0;                     // units/s
};

// Grows the problem while a run of the next size, at most eight times longer, stays well inside the time.
void choose_scale(RateProbe& probe, double seconds) {
  for (int scale = 1; scale <= probe.largest_scale; ++scale) {
    RateProblem problem = probe.make(scale);
    probe.best = std::max(probe.best, best_rate(problem.run, problem.work, seconds / 32));
    const double next_run = 8 * problem.work / probe.best;
    probe.problem = std::move(problem);
    if (next_run > seconds / 4) return;
  }
}

RateProblem gemm_problem(at::ScalarType type, int scale) {
  const int64_t n = int64_t{64} << scale;  // 128, 256, 512, 1024
  const auto options = at::TensorOptions().dtype(type);
  const at::Tensor a = at::full({n, n}, 0.5, options), b = at::full({n, n}, 0.25, options);
  at::Tensor out = at::empty({n, n}, options);
  const double size = static_cast<double>(n);
  return {2 * size * size * size, [a, b, out]() mutable { at::mm_out(out, a, b); }};
}

RateProblem conv_problem(at::ScalarType type, int scale) {
  // A 3x3 layer of an image model in channels-last, the layout convolutions are fastest in.
  const int64_t batch = int64_t{1} << (scale - 1), channels = 64, side = 28;
  const auto options = at::TensorOptions().dtype(type).memory_format(at::MemoryFormat::ChannelsLast);
  const at::Tensor x = at::empty({batch, channels, side, side}, options).fill_(0.5);
  const at::Tensor w = at::empty({channels, channels, 3, 3}, options).fill_(0.01);
  const double work = 2.0 * 9.0 * static_cast<double>(batch * channels * channels * side * side);
  return {work, [x, w] { (void)at::conv2d(x, w, {}, 1, 1); }};
}

// STREAM's triad a = b + s * c (McCalpin), 12 bytes an element; the write's extra read of the line is not counted, as
// there.
double memory_rate(const MachineFacts& facts, double seconds) {
  const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
  const auto mebi = int64_t{1} << 20;
  int64_t bytes = std::clamp<int64_t>(cache > 0 ? cache / 2 : 0, 64 * mebi, 192 * mebi);
  if (facts.memory_available_bytes > 0) {
    bytes = std::min<int64_t>(bytes, static_cast<int64_t>(facts.memory_available_bytes / 16));
  }
  const int64_t elements = std::max<int64_t>(bytes / 4, 1024);
  const at::Tensor b = at::full({elements}, 1.0F), c = at::full({elements}, 2.0F);
  at::Tensor a = at::zeros({elements});
  return best_rate([&] { at::add_out(a, b, c, 3.0); }, 12.0 * static_cast<double>(elements), seconds) * 1e-9;
}

// Multiplying tensors of a million elements, the size of a typical activation: partly cache, partly arithmetic.
double elementwise_rate(double seconds) {
  constexpr int64_t kElements = int64_t{1} << 20;
  const at::Tensor b = at::full({kElements}, 1.5F), c = at::full({kElements}, 0.5F);
  at::Tensor a = at::zeros({kElements});
  return best_rate([&] { at::mul_out(a, b, c); }, static_cast<double>(kElements), seconds) * 1e-9;
}

}  // namespace

double best_rate(const std::function<void()>& run, double work, double seconds) {
  constexpr int kFewestRuns = 3;
  run();  // warm-up: kernels compile and buffers are touched on the first call
  double fastest = std::numeric_limits<double>::infinity();
  const int64_t begin = now_ns();
  int64_t before = begin;
  int runs = 0;
  do {
    run();
    const int64_t after = now_ns();
    fastest = std::min(fastest, seconds_between(before, after));
    before = after;
    // A run that takes as long as all the time we have is not repeated for the sake of the count.
  } while (seconds_between(begin, before) < seconds ||
           (++runs < kFewestRuns && seconds_between(begin, before) < 4 * seconds));
  return fastest > 0 ? work / fastest : 0;
}

RateReport measure_rates(MachineFacts& facts, const RateOptions& options) {
  const c10::InferenceMode no_graph;
  const ThreadCountScope threads(options.threads > 0 ? options.threads : facts.allowed_cpus);
  const double seconds = options.seconds_per_probe;
  const auto gemm = [](at::ScalarType type) { return [type](int scale) { return gemm_problem(type, scale); }; };
  const auto conv = [](at::ScalarType type) { return [type](int scale) { return conv_problem(type, scale); }; };
  std::vector<RateProbe> probes = {
      {"fp32 matrix product", &facts.gemm_fp32_gflops, gemm(at::kFloat), 4, {}, 0},
      {"bf16 matrix product", &facts.gemm_bf16_gflops, gemm(at::kBFloat16), 4, {}, 0},
      {"fp16 matrix product", &facts.gemm_fp16_gflops, gemm(at::kHalf), 4, {}, 0},
      {"fp32 convolution", &facts.conv_fp32_gflops, conv(at::kFloat), 5, {}, 0},
      {"bf16 convolution", &facts.conv_bf16_gflops, conv(at::kBFloat16), 5, {}, 0},
      {"fp16 convolution", &facts.conv_fp16_gflops, conv(at::kHalf), 5, {}, 0},
  };
  RateReport report;
  const BusyCores busy;
  const int64_t wall = now_ns(), cpu = thread_cpu_ns();
  for (RateProbe& probe : probes) {
    try {
      choose_scale(probe, seconds);
    } catch (const c10::Error& error) {
      probe.problem.reset();
      report.notes.push_back(std::string(probe.name) +
                             " is not supported by LibTorch here: " + error.what_without_backtrace());
    }
  }
  constexpr int kRounds = 4;
  for (int round = 0; round < kRounds; ++round) {
    for (RateProbe& probe : probes) {
      if (!probe.problem) continue;
      probe.best = std::max(probe.best, best_rate(probe.problem->run, probe.problem->work, seconds / (2 * kRounds)));
    }
  }
  for (const RateProbe& probe : probes) *probe.slot = probe.problem ? probe.best * 1e-9 : 0;
  facts.memory_gb_per_second = memory_rate(facts, seconds);
  facts.elementwise_g_per_second = elementwise_rate(seconds / 2);
  const double running = static_cast<double>(thread_cpu_ns() - cpu) / static_cast<double>(now_ns() - wall);
  report.cpu_share = std::clamp(std::min(running, busy.cores_left() / intra_op_threads()), 0.0, 1.0);
  report.measured_at = utc_timestamp();
  if (report.cpu_share < kQuietCpuShare)
    report.problem =
        fmt::format("the machine was busy (redline had {:.0f} % of its cores' time)", 100 * report.cpu_share);
  else
    report.problem = rates_problem(facts);
  return report;
}

}  // namespace redline::device
