#include "doctor/rules/outside_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "doctor/rules/predict.h"

namespace redline::doctor {

using measure::Phase;

namespace {

constexpr double kSlowerClock = 0.1;  // below what the same run reached: less is the turbo's play
constexpr double kMostUnexplained = 0.15;

double computing(const Observation& seen) { return compute_share(seen) + seen.phase(Phase::Optimiser).share; }

// What more cores would gain a job that has `now` of them: the parallel part of its computing.
struct GainOfCores {
  double mean = 0, sure = 0;
};
GainOfCores gain_of_cores(const Observation& seen, double now, double then) {
  if (now <= 0 || then <= now) return {};
  const auto gain = [&](double parallel) {
    return removal_gain(std::clamp(parallel * compute_share(seen) * (1 - now / then), 0.0, 0.95));
  };
  const Calibration& known = seen.calibration;
  return {gain(known.parallel_share), gain(known.parallel_share - kInterval * known.parallel_deviation)};
}

// Others are what the cores were busy less what this process used: the one counted in ticks of a hundredth of a second,
// each given to who runs at its end.
double error_of_others(const Surroundings& around) {
  constexpr double kTicks = 100, kOfOneTick = 0.5;
  return around.seconds > 0 ? kOfOneTick * std::sqrt(std::max(1.0, around.cores) / (kTicks * around.seconds)) : 0.0;
}

LimitScore score_pinned(const Observation& seen, const MachineFacts& machine) {
  const GainOfCores gain = gain_of_cores(seen, machine.allowed_cpus, machine.logical_cpus);
  return {Limit::Pinned,
          gain.mean,
          "affinity",
          fmt::format("it may run on {} of the machine's {} cores", machine.allowed_cpus, machine.logical_cpus),
          "Start it without taskset or numactl, or give it more cores (a scheduler's --cpus-per-task, a container's "
          "cpuset).",
          gain.sure};
}

LimitScore score_contended(const Surroundings& around) {
  Surroundings fewer = around;
  if (fewer.others) *fewer.others = std::max(0.0, *fewer.others - kInterval * error_of_others(around));
  return {
      Limit::Contended,
      removal_gain(around.lost_to_others()),
      "CPU",
      fmt::format("other processes use {:.1f} of its {:.0f} cores{}{}, and its threads wait for one in {:.0f} % of "
                  "the time",
                  around.others.value_or(0), around.cores,
                  around.neighbour.empty() ? "" : " (most of it " + printable(around.neighbour) + ")",
                  around.stolen.value_or(0) > 0.01 ? fmt::format(" (the hypervisor takes {:.2f})", *around.stolen) : "",
                  100 * around.lost_to_others()),
      "Find who it is (top), and move the job or the neighbour, give each its own cores (taskset, a cpuset), or "
      "lower the neighbour's priority (nice). Nothing in the recipe helps.",
      removal_gain(fewer.lost_to_others())};
}

LimitScore score_bandwidth(const Observation& seen) {
  const SharedMemory& shared = seen.shared_memory;
  return {Limit::Contended,
          removal_gain(shared.lost()),
          "memory bandwidth",
          fmt::format("beside other processes the same work takes {:.0f} % more processor time, though its threads do "
                      "not wait for a core: they share the memory's bandwidth or a cache; they were there in {:.0f} % "
                      "of the time",
                      100 * (shared.slowdown - 1), 100 * shared.beside_share),
          "Move the neighbour to another socket or machine, or run fewer jobs at once. A smaller working set helps a "
          "little: a lower precision, smaller pieces (model.train_ds.micro_batch_size).",
          removal_gain(shared.surely_lost())};
}

LimitScore score_throttled(const Observation& seen, const MachineFacts& machine) {
  const Surroundings& around = *seen.surroundings;
  const double quota = machine.cgroup_cpu_quota;
  double gain = removal_gain(around.lost_to_quota()), sure = gain;
  std::string evidence =
      fmt::format("a quota{} holds its threads back in {:.0f} % of the time",
                  quota > 0 ? fmt::format(" of {:.2f} cores", quota) : "", 100 * around.lost_to_quota());
  // A quota that a job keeps by itself, with fewer threads, holds nothing back and still costs cores.
  if (quota > 0 && quota < machine.logical_cpus) {
    const GainOfCores cores = gain_of_cores(seen, std::max(quota, 1.0), machine.logical_cpus);
    if (cores.mean > gain) {
      gain = cores.mean;
      sure = std::max(sure, cores.sure);
      evidence = fmt::format("a quota of {:.2f} cores leaves it {} of the machine's {}", quota, machine.allowed_cpus,
                             machine.logical_cpus);
    }
  }
  return {Limit::Throttled,
          gain,
          "quota",
          evidence,
          "Ask for a larger quota (docker --cpus, Kubernetes resources.limits.cpu), or for whole cores; with the "
          "quota as it is, as many threads as whole cores of it wait less (trainer.intra_op_threads).",
          sure};
}

LimitScore score_stopped(const Surroundings& around) {
  return {Limit::Stopped, removal_gain(around.lost_to_stops()), "stopped",
          fmt::format("nothing of the process could run in {:.0f} % of the time, though no quota held it back and no "
                      "core was waited for: it was stopped and let go again (SIGSTOP, a limiter, a frozen group), or "
                      "the machine was paused",
                      100 * around.lost_to_stops()),
          "Look for what stops it: cpulimit, a scheduler that suspends jobs, a freezer cgroup, a virtual machine that "
          "is paused or moved."};
}

LimitScore score_swapping(const Surroundings& around) {
  return {Limit::Swapping, removal_gain(around.lost_to_swapping()), "memory",
          fmt::format("it waits for memory in {:.0f} % of the time, with {:.0f} pages a second from the disk",
                      100 * around.memory_pressure.value_or(0), around.major_faults),
          "Give it more memory (a container's limit, fewer jobs beside it), or need less: a smaller "
          "model.train_ds.micro_batch_size, prefetch_factor or cache."};
}

LimitScore score_clock(const Observation& seen) {
  const Surroundings& around = *seen.surroundings;
  LimitScore score{Limit::ClockedDown, 0, "frequency", "the clock of its cores was not measured often enough", ""};
  if (!around.gigahertz || !around.best_gigahertz || *around.best_gigahertz <= 0) return score;
  const double lost = 1 - *around.gigahertz / *around.best_gigahertz;
  score.evidence = fmt::format("its cores run at {:.2f} GHz most of the time, and reached {:.2f} in this run",
                               *around.gigahertz, *around.best_gigahertz);
  if (lost >= kSlowerClock) {
    score.gain = removal_gain(lost * computing(seen));
    score.sure = removal_gain(std::max(0.0, lost - kSlowerClock) * computing(seen));
  }
  score.cure =
      "Heat, a power limit or a power-saving governor: see `cpupower frequency-info` and the machine's cooling; on a "
      "shared machine neighbours use up the same limit.";
  return score;
}

// While a step computes, a thread of this process runs, or waits for something that is counted here. What is left over
// was spent in a way that nothing shows.
LimitScore score_unexplained(const JobView& job, const Observation& seen) {
  const Surroundings& around = *seen.surroundings;
  double idle = computing(seen) - around.own;
  // A single thread computes all the time or is held up; of several, one waits for the others.
  if (job.threads == 1) {
    double off_core = 0;
    for (const Phase phase : {Phase::Forward, Phase::Backward, Phase::Optimiser})
      off_core += around.off_core[static_cast<size_t>(phase)].value_or(0);
    idle = std::max(idle, off_core);
  }
  const double explained = around.lost_to_others() + around.lost_to_quota() + around.lost_to_stops() +
                           around.lost_to_swapping() + around.lost_to_itself();
  const double left = idle - explained;
  return {Limit::Unknown, left >= kMostUnexplained ? removal_gain(std::min(0.9, left)) : 0, "",
          fmt::format(
              "in {:.0f} % of the time a step was being computed and no thread of this process ran for it, and nothing "
              "that was recorded says why{}",
              100 * std::max(0.0, left), around.unseen.empty() ? "" : " (not to be seen here: " + around.unseen + ")"),
          "Run `redline doctor` on the recipe, on a machine where more is to be seen, or look at the process with perf "
          "or strace."};
}

}  // namespace

std::vector<LimitScore> outside_limits(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  std::vector<LimitScore> scores;
  // What it may not use, by affinity alone: a quota is its own verdict.
  if (machine.cgroup_cpu_quota <= 0 && machine.allowed_cpus < machine.logical_cpus && !machine.has_cuda)
    scores.push_back(score_pinned(seen, machine));
  if (!seen.surroundings) return scores;
  const Surroundings& around = *seen.surroundings;
  scores.push_back(score_contended(around));
  scores.push_back(score_bandwidth(seen));
  scores.push_back(score_throttled(seen, machine));
  scores.push_back(score_stopped(around));
  scores.push_back(score_swapping(around));
  scores.push_back(score_clock(seen));
  if (!machine.has_cuda) scores.push_back(score_unexplained(job, seen));
  for (LimitScore& score : slow_disk(job, seen, machine)) scores.push_back(std::move(score));
  return scores;
}

}  // namespace redline::doctor
