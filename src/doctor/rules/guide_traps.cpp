#include "doctor/rules/guide_traps.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/precision.h"
#include "core/strings.h"
#include "doctor/rules/compile_cost.h"

namespace redline::doctor {

std::optional<Trap> iterations_trap(const RatePair& pair) {
  const double before = pair.batch_before * pair.iterations_per_second_before;
  const double after = pair.batch_after * pair.iterations_per_second_after;
  if (before <= 0 || after <= 0 || pair.batch_before == pair.batch_after) return std::nullopt;
  const double iterations = pair.iterations_per_second_after / pair.iterations_per_second_before - 1;
  const double samples = after / before - 1;
  if (iterations > -0.05 || samples < -0.05) return std::nullopt;
  return Trap{"iterations_not_samples",
              fmt::format("Iterations/s fell by {:.0f} % ({:.2f} to {:.2f}), but each iteration now holds {:g} samples "
                          "instead of {:g}: "
                          "samples/s went from {:.1f} to {:.1f} ({:+.1f} %). Compare samples/s when the batch changes.",
                          -100 * iterations, pair.iterations_per_second_before, pair.iterations_per_second_after,
                          pair.batch_after, pair.batch_before, before, after, 100 * samples)};
}

namespace {

std::optional<Trap> slow_precision(const JobView& job, const MachineFacts& machine) {
  const Precision precision = parse_precision(job.precision).value_or(Precision::Fp32);
  const double rate = precision == Precision::Fp32 ? 0 : matrix_gflops(machine, precision);
  if (rate <= 0 || machine.gemm_fp32_gflops <= 1.05 * rate) return std::nullopt;
  return Trap{"slow_precision",
              fmt::format("{} is slower than fp32 on this machine: matrix products run at {:.0f} against {:.0f} "
                          "GFLOP/s ({:.1f} times slower). "
                          "Use precision 32-true here.",
                          job.precision, rate, machine.gemm_fp32_gflops, machine.gemm_fp32_gflops / rate)};
}

std::optional<Trap> too_many_workers(const JobView& job, const MachineFacts& machine) {
  if (job.workers <= machine.allowed_cpus) return std::nullopt;
  return Trap{"workers_over_cores", fmt::format("{} workers share {} cores (affinity and cgroup quota counted): they "
                                                "take time from the training threads and from "
                                                "each other. Use at most {}.",
                                                job.workers, machine.allowed_cpus, machine.allowed_cpus)};
}

std::optional<Trap> workers_for_tiny_samples(const JobView& job, const Observation& seen) {
  const double loader = seen.loader_worker_seconds();
  if (job.workers < 1 || seen.step_seconds <= 0 || loader <= 0 || loader > 0.02 * seen.step_seconds)
    return std::nullopt;
  return Trap{"workers_not_needed",
              fmt::format("Preparing a step's samples takes {:.2f} ms of worker time against a step of {:.2f} ms: "
                          "workers cannot gain more than {:.1f} %.",
                          1e3 * loader, 1e3 * seen.step_seconds, 100 * loader / seen.step_seconds)};
}

std::optional<Trap> slow_disk(const Observation& seen, const MachineFacts& machine) {
  const double read = seen.stage(measure::Stage::Read), all = seen.loader_worker_seconds();
  if (machine.disk_kind != "hdd" && machine.disk_kind != "network") return std::nullopt;
  if (all <= 0 || read < 0.5 * all) return std::nullopt;
  return Trap{"slow_disk", fmt::format("{:.0f} % of the loader's time is reading from a {} disk: tars (sequential "
                                       "reads), a cache, or a faster disk help; more workers do not.",
                                       100 * read / all, machine.disk_kind)};
}

std::optional<Trap> compiled_for_too_few_steps(const JobView& job, const Observation& seen) {
  const int64_t steps = job.steps(), needed = steps_to_earn_compilation(seen.step_seconds);
  if (job.compile == "false" || !job.compile_refusal.empty() || seen.step_seconds <= 0 || steps <= 0 || steps >= needed)
    return std::nullopt;
  return Trap{
      "compiled_for_too_few_steps",
      fmt::format("The run is too short for {}={}: compiling takes about {}, which a step that is {:.0f} % faster "
                  "brings back in {} steps, and the run has {}. Unless the package is in the cache already "
                  "(`redline compile`), leave it out.",
                  job.path("compile"), job.compile, format_seconds(kCompileSeconds), kCompileGain * 100, needed,
                  steps)};
}

}  // namespace

std::vector<Trap> find_traps(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  std::vector<Trap> traps;
  for (auto& trap : {slow_precision(job, machine), too_many_workers(job, machine), workers_for_tiny_samples(job, seen),
                     slow_disk(seen, machine), compiled_for_too_few_steps(job, seen)})
    if (trap) traps.push_back(*trap);
  return traps;
}

}  // namespace redline::doctor
