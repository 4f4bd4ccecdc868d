#include "doctor/guide_traps.h"

#include <fmt/format.h>

#include <algorithm>

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

std::optional<Trap> validation_interval_trap(double before, double after) {
  if (before <= 0 || after <= 0 || before > 1 || after >= before) return std::nullopt;
  return Trap{"validation_more_often", fmt::format("val_check_interval {:g} -> {:g} validates {:.3g} times as often, "
                                                   "not less often: it is the fraction of an epoch "
                                                   "between two validations. Raise it to validate less.",
                                                   before, after, before / after)};
}

std::optional<Trap> loss_scale_trap(bool overflowed, double before, double after) {
  if (before <= 0 || after <= 0 || before == after) return std::nullopt;
  if (overflowed && after > before) {
    return Trap{
        "loss_scale_direction",
        fmt::format(
            "Gradients overflowed at loss scale {:g}: a higher scale ({:g}) overflows more. Lower it, or let it "
            "adapt (loss_scale: dynamic).",
            before, after)};
  }
  if (!overflowed && after < before) {
    return Trap{
        "loss_scale_direction",
        fmt::format(
            "Gradients underflowed at loss scale {:g}: a lower scale ({:g}) loses more of them. Raise it, or let "
            "it adapt (loss_scale: dynamic).",
            before, after)};
  }
  return std::nullopt;
}

std::optional<Trap> ranks_batch_trap(int64_t batch, int devices, bool batch_is_per_device) {
  if (devices < 2) return std::nullopt;
  if (batch_is_per_device) {
    return Trap{"batch_times_ranks", fmt::format("batch_size {} counts per rank here: {} ranks train with an effective "
                                                 "batch of {}. DataParallel would have split the {} instead; "
                                                 "divide by {} to keep it.",
                                                 batch, devices, batch * devices, batch, devices)};
  }
  return Trap{
      "batch_times_ranks",
      fmt::format("batch_size {} is the whole batch: {} ranks get {} each, and the effective batch stays {}, not {}.",
                  batch, devices, batch / devices, batch, batch * devices)};
}

namespace {

std::optional<Trap> slow_precision(const Settings& settings, const MachineFacts& machine) {
  const bool half = settings.precision == "16-mixed", bf16 = settings.precision == "bf16-mixed";
  const double rate = half ? machine.gemm_fp16_gflops : bf16 ? machine.gemm_bf16_gflops : 0;
  if (rate <= 0 || machine.gemm_fp32_gflops <= 1.05 * rate) return std::nullopt;
  return Trap{"slow_precision",
              fmt::format("{} is slower than fp32 on this machine: matrix products run at {:.0f} against {:.0f} "
                          "GFLOP/s ({:.1f} times slower). "
                          "Use precision 32-true here.",
                          settings.precision, rate, machine.gemm_fp32_gflops, machine.gemm_fp32_gflops / rate)};
}

std::optional<Trap> too_many_workers(const Settings& settings, const MachineFacts& machine) {
  if (settings.num_workers <= machine.allowed_cpus) return std::nullopt;
  return Trap{"workers_over_cores", fmt::format("{} workers share {} cores (affinity and cgroup quota counted): they "
                                                "take time from the training threads and from "
                                                "each other. Use at most {}.",
                                                settings.num_workers, machine.allowed_cpus, machine.allowed_cpus)};
}

std::optional<Trap> workers_for_tiny_samples(const Settings& settings, const Observation& seen) {
  const double loader = seen.loader_worker_seconds();
  if (settings.num_workers < 1 || seen.step_seconds <= 0 || loader <= 0 || loader > 0.02 * seen.step_seconds)
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

}  // namespace

std::vector<Trap> find_traps(const Settings& settings, const Observation& seen, const MachineFacts& machine) {
  std::vector<Trap> traps;
  for (auto& trap : {slow_precision(settings, machine), too_many_workers(settings, machine),
                     workers_for_tiny_samples(settings, seen), slow_disk(seen, machine)})
    if (trap) traps.push_back(*trap);
  return traps;
}

}  // namespace redline::doctor
