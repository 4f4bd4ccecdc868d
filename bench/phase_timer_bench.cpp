// What measuring costs a step of about 1 ms: off; timers only; timers with memory reading and the row written to a run
// record; all that and what the machine does meanwhile, as a run records it. The step is a fixed amount of work, not a
// wait until a time: a wait would hide the cost it is meant to show. One core does everything, so that what other
// threads do for the record is paid here too. Bar: below 0.5 %.
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/time.h"
#include "device/process_memory.h"
#include "measure/run_record.h"
#include "measure/statistics.h"
#include "measure/step_clock.h"
#include "train/loop/surroundings_watch.h"

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

// Two windows of the surroundings in a turn.
constexpr int kSteps = 600, kVariants = 4;
constexpr int64_t kRssEveryNs = 10'000'000;  // as a run does (train/loop/recording.cpp)

class Measured {
 public:
  explicit Measured(const std::filesystem::path& folder) : writer_(folder, false) {}

  // 0: off; 1: timers; 2: and record; 3: and surroundings.
  Costs turn(int which) {
    if (which == 0) {
      return time_steps(kSteps, [&](int) {
        for (int i = 0; i < kPieces; ++i) work(piece_);
      });
    }
    if (which == 1) return time_steps(kSteps, [&](int) { timed_step(); });
    std::optional<train::SurroundingsWatch> watch;
    if (which == 3) watch.emplace().start();
    clock_.sample_cpu_every(
        which == 3 ? measure::sampling_interval(kPieces, 2 * measure::calibrate_cpu_ns(), 1e6, 0.0005) : 0);
    return time_steps(kSteps, [&](int) {
      measure::StepRow row;
      row.phase_ns = timed_step();
      row.step = ++done_;
      row.begin_ns = clock_.begin_ns();
      row.wall_ns = clock_.wall_ns();
      if (const int64_t now = row.begin_ns + row.wall_ns; now - rss_read_ns_ >= kRssEveryNs) {
        rss_bytes_ = device::process_rss_bytes();
        rss_read_ns_ = now;
      }
      row.rss_bytes = rss_bytes_;
      writer_.step(row);
      if (!watch) return;
      if (const measure::PhaseTimes* const cpu = clock_.cpu()) watch->add(row.phase_ns, *cpu, row.wall_ns);
      if (const auto window = watch->after_step(row.step, row.begin_ns + row.wall_ns))
        writer_.event(measure::kSurroundingsEvent, measure::surroundings_fields(*window));
    });
  }

 private:
  measure::PhaseTimes timed_step() {
    clock_.begin_step();
    for (Phase phase : kPhases) {
      const measure::PhaseScope scope(clock_, phase);
      work(piece_);
    }
    return clock_.end_step();
  }

  int64_t piece_ = iterations_for(1e-3) / kPieces;
  measure::StepClock clock_;
  measure::RunWriter writer_;
  int64_t done_ = 0, rss_bytes_ = 0, rss_read_ns_ = 0;
};

void use_one_core() {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int last = -1;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) last = core;
  cpu_set_t one;
  CPU_ZERO(&one);
  if (last >= 0) CPU_SET(last, &one), sched_setaffinity(0, sizeof one, &one);
}

int run(int blocks) {
  use_one_core();
  const auto folder = std::filesystem::temp_directory_path() / ("redline_phase_timer_" + std::to_string(getpid()));
  Measured measured(folder);
  for (int which = 0; which < kVariants; ++which) measured.turn(which);
  std::vector<double> wall[kVariants], cpu[kVariants];
  for (int block = 0; block < blocks; ++block) {
    Costs sums[kVariants] = {};
    for (int which : measure::interleaved_order(kVariants, block)) {
      const Costs costs = measured.turn(which);
      sums[which].wall += costs.wall / 2;
      sums[which].cpu += costs.cpu / 2;
    }
    for (int which = 0; which < kVariants; ++which) {
      wall[which].push_back(sums[which].wall);
      cpu[which].push_back(sums[which].cpu);
    }
  }
  const char* const names[] = {"", "timers", "timers, memory and record", "all, with the surroundings"};
  fmt::print("step {:.3f} ms, {} scopes, one scope {:.0f} ns\n", measure::median(wall[0]) * 1e3, kPieces,
             measure::calibrate_scope_ns());
  for (int which = 1; which < kVariants; ++which) {
    print_cost(fmt::format("{}, wall time", names[which]).c_str(), wall[0], wall[which]);
    print_cost(fmt::format("{}, CPU time of the thread", names[which]).c_str(), cpu[0], cpu[which]);
  }
  const device::SurroundingsReader reader;
  std::vector<double> reads;
  for (int i = 0; i < 50; ++i) {
    const int64_t begin = now_ns();
    reader.read();
    reads.push_back(seconds_between(begin, now_ns()));
  }
  std::filesystem::remove_all(folder);
  const auto percent = [](const std::vector<double>& off, const std::vector<double>& on) {
    return (1 / measure::compare_blocks(off, on).ratio - 1) * 100;
  };
  fmt::print(
      R"({{"step_ms": {:.4f}, "scope_ns": {:.1f}, "timers_percent": {:.4f}, "record_percent": {:.4f}, "overhead_percent": {:.4f}, "surroundings_read_us": {:.1f}}})"
      "\n",
      measure::median(wall[0]) * 1e3, measure::calibrate_scope_ns(), percent(wall[0], wall[1]),
      percent(wall[0], wall[2]), percent(wall[0], wall[3]), 1e6 * measure::median(reads));
  return 0;
}

}  // namespace
}  // namespace redline::bench

int main(int argc, char** argv) { return redline::bench::run(argc > 1 ? std::atoi(argv[1]) : 20); }
