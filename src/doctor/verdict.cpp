#include "doctor/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "doctor/rules/outside_limits.h"
#include "doctor/rules/predict.h"

namespace redline::doctor {

using measure::Phase;
using measure::Stage;

const char* limit_name(Limit limit) {
  switch (limit) {
    case Limit::Data:
      return "data-bound";
    case Limit::Compute:
      return "compute-bound";
    case Limit::Memory:
      return "memory-bound";
    case Limit::Cadence:
      return "cadence-bound";
    case Limit::SmallBatch:
      return "small-batch-bound";
    case Limit::Padding:
      return "padding-bound";
    case Limit::Oversubscribed:
      return "oversubscribed";
    case Limit::Contended:
      return "contended";
    case Limit::Throttled:
      return "throttled";
    case Limit::Swapping:
      return "swapping";
    case Limit::Pinned:
      return "pinned";
    case Limit::Stopped:
      return "stop-and-go";
    case Limit::ClockedDown:
      return "clocked-down";
    case Limit::SlowDisk:
      return "slow disk";
    case Limit::Balanced:
      return "balanced";
    case Limit::Unknown:
      return "unknown";
  }
  return "?";
}

namespace {

constexpr double kSwitchSeconds = 10e-6;  // of a thread that is put aside in the middle of its work, caches included
constexpr double kNarrowerBuckets = 0.5;  // of the padding, that more of them would take away
constexpr double kWorthNaming = 0.05;     // a limit whose lifting gains less than this does not limit the run

// A sentence as the second half of another.
std::string lower_first(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  if (!text.empty() && text.back() == '.') text.pop_back();
  return text;
}

std::string slowest_stage(const JobView& job, const Observation& seen) {
  size_t largest = 0;
  for (size_t s = 1; s < measure::kNumStages; ++s)
    if (seen.stage_seconds_per_step[s] > seen.stage_seconds_per_step[largest]) largest = s;
  const double loader = seen.loader_worker_seconds();
  if (loader <= 0) return "read";
  // When no stage stands out and the workers could simply be more, the count is the limit.
  const bool stands_out = seen.stage_seconds_per_step[largest] > 0.5 * loader;
  if (job.workers >= 1 && loader / job.workers > 0.9 * seen.step_seconds && !stands_out) return "worker count";
  return std::string(measure::stage_name(static_cast<Stage>(largest)));
}

LimitScore score_data(const JobView& job, const Observation& seen, std::span<const Ceiling> all) {
  const double share = seen.phase(Phase::Wait).share + seen.phase(Phase::Copy).share;
  const Ceiling* free_loader = find_ceiling(all, ExperimentKind::FreeLoader);
  // No loader can gain more than what a step waits for it and what its workers take from the training threads.
  const double paid =
      seen.step_seconds > 0 ? seen.loader_worker_seconds() / std::max(1, job.threads) / seen.step_seconds : 0.0;
  const double bound = removal_gain(std::min(0.95, share + paid));
  const double gain =
      free_loader != nullptr ? std::clamp(free_loader->gain(), 0.0, std::max(bound, 0.0)) : removal_gain(share);
  return {Limit::Data, gain, slowest_stage(job, seen),
          fmt::format("{:.0f} % of the step is waiting for data; {}", 100 * share,
                      free_loader != nullptr ? lower_first(free_loader->sentence)
                                             : fmt::format("a free loader would gain {:+.0f} %", 100 * gain))};
}

LimitScore score_cadence(const Observation& seen) {
  const Phase cadences[] = {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint};
  double share = 0, largest = -1;
  std::string name;
  for (Phase phase : cadences) {
    share += seen.phase(phase).share;
    if (seen.phase(phase).share > largest) {
      largest = seen.phase(phase).share;
      name = measure::phase_name(phase);
    }
  }
  return {Limit::Cadence, removal_gain(share), name,
          fmt::format("log, monitor, validation and checkpoints take {:.1f} % of the time, most of it {}", 100 * share,
                      name)};
}

LimitScore score_padding(const JobView& job, const Observation& seen) {
  if (!job.computes_padding) return {Limit::Padding, 0, "padding", "the model computes no padding", ""};
  const std::string evidence =
      seen.costs.known
          ? fmt::format("{:.0f} % of a batch is padding, which costs {:.0f} (±{:.0f}) % of forward and backward",
                        100 * seen.padding_share, 100 * seen.costs.padding_share, 100 * 1.96 * seen.costs.padding_error)
          : fmt::format("{:.0f} % of a batch is padding", 100 * seen.padding_share);
  // Samples are never all of one length: what buckets, or narrower ones, could take away, and as much as is sure.
  const double removable = job.buckets ? kNarrowerBuckets : 1 - kLeftByBuckets.mean;
  Observation sure = seen;
  sure.costs.padding_share = std::max(0.0, seen.costs.padding_share - seen.costs.padding_error);
  return {Limit::Padding, predicted_padding_gain(sure, removable), "padding", evidence};
}

// Steps that are all alike tell no fixed cost. With a sample or two in a piece, threads that are neither busy nor
// waiting for a core while the step computes have too little to do; a larger batch has work for them.
double idle_threads(const JobView& job, const Observation& seen) {
  constexpr double kFewSamples = 2;
  if (seen.costs.known || !seen.surroundings || job.threads < 2 || seen.step_seconds <= 0) return 0;
  if (seen.samples_per_step > kFewSamples * std::max(1.0, seen.micro_batches_per_step)) return 0;
  const Surroundings& around = *seen.surroundings;
  const double busy = around.own - seen.loader_worker_seconds() / seen.step_seconds + around.waited.value_or(0);
  return std::clamp(compute_share(seen) - busy / job.threads, 0.0, 0.9);
}

// What a step costs however many samples it holds. A batch twice as large halves it per sample.
// Steps of as many samples each cannot tell what a step costs from what a sample does, and workers that share the
// training threads' cores cost the same whatever the length of the samples: theirs is taken off.
LimitScore score_batch(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  Observation sure = seen;
  const bool spare = machine.allowed_cpus > job.threads || machine.has_cuda;
  const double workers =
      job.workers > 0 && !spare && seen.step_seconds > 0
          ? paid_by_step(machine.allowed_cpus).mean * seen.loader_worker_seconds() / seen.step_seconds
          : 0;
  sure.costs.fixed_share = std::max(0.0, seen.costs.fixed_share - seen.costs.fixed_error - workers);
  const double idle = idle_threads(job, seen);
  const double fixed = std::min(0.99, fixed_share(sure) + idle);
  return {Limit::SmallBatch, removal_gain(fixed / 2), "batch_size",
          fmt::format(
              "{:.0f} % of the step does not grow with the batch{}; twice the batch would gain {:.0f} %", 100 * fixed,
              idle > 0 ? fmt::format(" (its threads have nothing to do in {:.0f} % of the time)", 100 * idle) : "",
              100 * removal_gain(fixed / 2))};
}

LimitScore score_oversubscription(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  const int wanted = job.workers + std::max(1, job.threads);
  const double waited = seen.surroundings ? seen.surroundings->lost_to_itself() : 0;
  const double loader = seen.loader_worker_seconds();
  // More workers than cores wait for each other; of what they take, a step may win back what it pays for none of them.
  double gain = 0;
  if (job.workers > machine.allowed_cpus && seen.step_seconds > 0)
    gain = removal_gain(
        std::min(0.5, paid_by_step(machine.allowed_cpus).mean * loader / machine.allowed_cpus / seen.step_seconds));
  // Threads beyond the cores wait in turn, which costs nothing by itself. What it costs is cores that are idle while a
  // region waits for its last thread, and the switches.
  const bool threads = job.threads > machine.allowed_cpus;
  if (threads && seen.surroundings && waited > 0) {
    const Surroundings& around = *seen.surroundings;
    const double cores = std::max(1, machine.allowed_cpus);
    const double idle = compute_share(seen) * std::max(0.0, 1 - (around.own + around.others.value_or(0)) / cores);
    gain = std::max(gain, removal_gain(std::min(0.9, idle + around.switches * kSwitchSeconds / cores)));
  }
  return {Limit::Oversubscribed, gain, threads ? "threads" : "workers",
          fmt::format("{} threads want {} cores{}; step times spread by {:.0f} %", wanted, machine.allowed_cpus,
                      waited > 0 ? fmt::format(", {:.1f} of them wait for one at any time",
                                               seen.surroundings->waited.value_or(0))
                                 : "",
                      100 * seen.step_spread)};
}

// What cannot be had for lack of memory is what a larger batch would gain; a run on the edge of its memory is limited
// by it even where that is little.
LimitScore score_memory(const Observation& seen, const MachineFacts& machine) {
  constexpr double kFull = 0.92;
  const auto limit = static_cast<double>(machine.memory_limit_bytes);
  const double used = limit > 0 ? static_cast<double>(std::max(seen.peak_bytes, seen.rss_bytes)) / limit : 0;
  return {Limit::Memory, used > kFull ? std::max(kWorthNaming, removal_gain(fixed_share(seen) / 2)) : 0.0, "memory",
          fmt::format("{:.0f} % of the memory limit is in use: a larger batch would not fit", 100 * used)};
}

// A cause takes from its symptoms what it explains: a loader that waits for a slow disk is not slow itself.
void explain(std::vector<LimitScore>& scores) {
  const auto gain_of = [&](Limit limit, std::string_view detail) {
    const auto found = std::ranges::find_if(
        scores, [&](const LimitScore& s) { return s.limit == limit && (detail.empty() || s.detail == detail); });
    return found == scores.end() ? 0.0 : found->gain;
  };
  const double reads = gain_of(Limit::SlowDisk, "reads"), saves = gain_of(Limit::SlowDisk, "checkpoints");
  for (LimitScore& score : scores) {
    const bool by_reads = score.limit == Limit::Data, by_saves = score.limit == Limit::Cadence;
    const double cause = by_reads ? reads : by_saves ? saves : 0.0;
    if (cause >= kWorthNaming) score.gain = std::max(0.0, (1 + score.gain) / (1 + cause) - 1);
  }
}

double confidence_of(const Diagnosis& diagnosis, const Observation& seen) {
  const double first = diagnosis.scores.empty() ? 0 : diagnosis.scores[0].gain;
  const double second = diagnosis.scores.size() > 1 ? diagnosis.scores[1].gain : 0;
  const double margin = diagnosis.limit == Limit::Compute || diagnosis.limit == Limit::Balanced
                            ? std::clamp((kWorthNaming - first) / kWorthNaming, 0.0, 1.0)
                            : std::clamp((first - second) / std::max(first, 1e-9), 0.0, 1.0);
  const double steps = 1.0 - std::exp(-static_cast<double>(seen.steps) / 20.0);
  // What was seen while others disturbed says less of the job itself.
  const bool around = diagnosis.limit >= Limit::Contended && diagnosis.limit <= Limit::SlowDisk;
  const double quiet = around || !seen.surroundings ? 1.0 : 1.0 - 0.7 * seen.surroundings->disturbed;
  return std::clamp((0.5 + 0.5 * margin) * steps * quiet, 0.0, 0.99);
}

std::string sentence_of(const LimitScore& score) {
  if (score.limit == Limit::Unknown) return fmt::format("I cannot tell what limits this run: {}.", score.evidence);
  if (score.limit == Limit::SlowDisk)
    return fmt::format("This run has a slow disk ({}): {}.", score.detail, score.evidence);
  return fmt::format("This run is {} ({}): {}.", limit_name(score.limit), score.detail, score.evidence);
}

std::string compute_sentence(const Observation& seen, double share) {
  return fmt::format(
      "Compute-bound: {:.0f} % of the step is forward, backward and optimiser ({:.1f} ms of {:.1f} ms); the loader and "
      "the cadences cannot "
      "gain {:.0f} %.",
      100 * share, 1e3 * share * seen.step_seconds, 1e3 * seen.step_seconds, 100 * kWorthNaming);
}

}  // namespace

Diagnosis diagnose(const JobView& job, const Observation& seen, std::vector<Ceiling> all, const MachineFacts& machine,
                   const PlanShapeOf& plan) {
  Diagnosis diagnosis;
  if (seen.steps == 0) {
    diagnosis.sentence = "The run has no finished steps, so there is nothing to judge; run it for at least 20 steps.";
    return diagnosis;
  }
  diagnosis.scores = {score_data(job, seen, all),      score_cadence(seen),
                      score_padding(job, seen),        score_memory(seen, machine),
                      score_batch(job, seen, machine), score_oversubscription(job, seen, machine)};
  for (LimitScore& score : outside_limits(job, seen, machine)) diagnosis.scores.push_back(std::move(score));
  explain(diagnosis.scores);
  std::stable_sort(diagnosis.scores.begin(), diagnosis.scores.end(),
                   [](const LimitScore& a, const LimitScore& b) { return a.gain > b.gain; });
  const LimitScore& first = diagnosis.scores[0];
  const double compute = seen.phase(Phase::Forward).share + seen.phase(Phase::Backward).share +
                         seen.phase(Phase::Optimiser).share + seen.phase(Phase::Reduce).share;
  if (first.gain >= kWorthNaming) {
    diagnosis.limit = first.limit;
    diagnosis.detail = first.detail;
    diagnosis.sentence = sentence_of(first);
    diagnosis.cure = first.cure;
  } else if (compute >= 0.8) {
    diagnosis.limit = Limit::Compute;
    diagnosis.detail = seen.phase(Phase::Forward).share > seen.phase(Phase::Backward).share ? "forward" : "backward";
    diagnosis.sentence = compute_sentence(seen, compute);
  } else {
    diagnosis.limit = Limit::Balanced;
    diagnosis.sentence =
        fmt::format("Balanced: no single part would gain {:.0f} % if it were free.", 100 * kWorthNaming);
  }
  if (seen.surroundings) diagnosis.unseen = seen.surroundings->unseen;
  diagnosis.confidence = confidence_of(diagnosis, seen);
  diagnosis.suggestions =
      find_candidates(job, seen, machine, PlanModel(seen, plan ? plan : assumed_plan(job, seen), !plan), all);
  // What cannot be shown here is the ledger's to say.
  std::erase_if(diagnosis.suggestions, [](const Candidate& c) { return c.values.empty() || c.not_measurable; });
  std::stable_sort(diagnosis.suggestions.begin(), diagnosis.suggestions.end(),
                   [](const Candidate& a, const Candidate& b) { return a.predicted_gain > b.predicted_gain; });
  diagnosis.traps = find_traps(job, seen, machine);
  diagnosis.ceilings = std::move(all);
  return diagnosis;
}

}  // namespace redline::doctor
