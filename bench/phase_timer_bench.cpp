// What the phase timers cost a step of about 1 ms: off, timers only, and timers with the row written to a run record.
// The step is a fixed amount of work, not a wait until a time: a wait would hide the cost it is meant to show. Bar:
// below 1 %.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/time.h"
#include "device/process_memory.h"
#include "measure/run_record.h"
#include "measure/statistics.h"
#include "measure/step_clock.h"

namespace redline::bench {
namespace {

using measure::Phase;

constexpr Phase kPhases[] = {Phase::Wait,      Phase::Copy, Phase::Forward, Phase::Backward, Phase::Reduce,
                             Phase::Optimiser, Phase::Log,  Phase::Monitor, Phase::Validate, Phase::Checkpoint};
constexpr int kPieces = static_cast<int>(std::size(kPhases));

double sink = 1.0;

// Not inlined: each variant must run the same code, or the loops differ by more than the timers cost.
[[gnu::noinline]] void work(int64_t iterations) {
  double x = sink;
  for (int64_t i = 0; i < iterations; ++i) x = x * 1.0000001 + 1e-9;
  sink = x < 1e6 ? x : 1.0;
}

int64_t iterations_for(double seconds) {
  int64_t iterations = 1000;
  while (true) {
    const int64_t begin = now_ns();
    work(iterations);
    const double took = seconds_between(begin, now_ns());
    if (took > seconds / 4) return static_cast<int64_t>(static_cast<double>(iterations) * seconds / took);
    iterations *= 2;
  }
}

struct Costs {
  double wall, cpu;  // seconds per step
};

template <class Step>
Costs time_steps(int steps, Step step) {
  const int64_t wall = now_ns(), cpu = thread_cpu_ns();
  for (int i = 0; i < steps; ++i) step(i);
  return {seconds_between(wall, now_ns()) / steps, static_cast<double>(thread_cpu_ns() - cpu) * 1e-9 / steps};
}

void print_cost(const char* name, const std::vector<double>& off, const std::vector<double>& on) {
  const measure::RatioEstimate estimate = measure::compare_blocks(off, on);
  const auto cost = [](double ratio) { return (1 / ratio - 1) * 100; };
  fmt::print("{:<44} {:+.3f} %  [{:+.3f}, {:+.3f}]  over {} blocks\n", name, cost(estimate.ratio),
             cost(estimate.interval.high), cost(estimate.interval.low), estimate.blocks);
}

int run(int blocks) {
  constexpr int kSteps = 30;
  const auto folder = std::filesystem::temp_directory_path() / ("redline_phase_timer_" + std::to_string(getpid()));
  const int64_t piece = iterations_for(1e-3) / kPieces;
  measure::StepClock clock;
  measure::RunWriter writer(folder, false);
  int64_t done = 0;
  const auto timed_step = [&] {
    clock.begin_step();
    for (Phase phase : kPhases) {
      const measure::PhaseScope scope(clock, phase);
      work(piece);
    }
    return clock.end_step();
  };
  const auto variant = [&](int which) -> Costs {
    if (which == 0) {
      return time_steps(kSteps, [&](int) {
        for (int i = 0; i < kPieces; ++i) work(piece);
      });
    }
    if (which == 1) return time_steps(kSteps, [&](int) { timed_step(); });
    return time_steps(kSteps, [&](int) {
      measure::StepRow row;
      row.phase_ns = timed_step();
      row.step = ++done;
      row.wall_ns = clock.wall_ns();
      row.rss_bytes = device::process_rss_bytes();
      writer.step(row);
    });
  };
  for (int which : {0, 1, 2}) variant(which);
  std::vector<double> wall[3], cpu[3];
  for (int block = 0; block < blocks; ++block) {
    Costs sums[3] = {};
    for (int which : measure::interleaved_order(3, block)) {
      const Costs costs = variant(which);
      sums[which].wall += costs.wall / 2;
      sums[which].cpu += costs.cpu / 2;
    }
    for (int which : {0, 1, 2}) {
      wall[which].push_back(sums[which].wall);
      cpu[which].push_back(sums[which].cpu);
    }
  }
  fmt::print("step {:.3f} ms, {} scopes, one scope {:.0f} ns\n", measure::median(wall[0]) * 1e3, kPieces,
             measure::calibrate_scope_ns());
  print_cost("timers, wall time", wall[0], wall[1]);
  print_cost("timers, CPU time", cpu[0], cpu[1]);
  print_cost("timers, memory reading and record, wall time", wall[0], wall[2]);
  print_cost("timers, memory reading and record, CPU time", cpu[0], cpu[2]);
  std::filesystem::remove_all(folder);
  const auto percent = [](const std::vector<double>& off, const std::vector<double>& on) {
    return (1 / measure::compare_blocks(off, on).ratio - 1) * 100;
  };
  fmt::print(R"({{"step_ms": {:.4f}, "scope_ns": {:.1f}, "timers_percent": {:.4f}, "overhead_percent": {:.4f}}})"
             "\n",
             measure::median(wall[0]) * 1e3, measure::calibrate_scope_ns(), percent(wall[0], wall[1]),
             percent(wall[0], wall[2]));
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc > 1 ? std::atoi(argv[1]) : 40); }
