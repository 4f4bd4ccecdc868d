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
constexpr double kWorthNaming = 0.05;     // a limit whose lifting gains less than this does not limit the run
constexpr double kSurelyGained = 0.02;    // and of which not even this is sure is not known to

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
  const auto raced = [&](double found) { return std::clamp(found, 0.0, std::max(bound, 0.0)); };
  const double error = std::hypot(seen.phase(Phase::Wait).share_error, seen.phase(Phase::Copy).share_error);
  const double gain = free_loader != nullptr ? raced(free_loader->gain()) : removal_gain(share);
  const double sure = free_loader != nullptr ? raced(free_loader->speed.interval.low - 1) : least_gain(share, error);
  return {Limit::Data,
          gain,
          slowest_stage(job, seen),
          fmt::format("{:.0f} % of the step is waiting for data; {}", 100 * share,
                      free_loader != nullptr ? lower_first(free_loader->sentence)
                                             : fmt::format("a free loader would gain {:+.0f} %", 100 * gain)),
          "",
          sure};
}

LimitScore score_cadence(const Observation& seen) {
  const Phase cadences[] = {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint};
  double share = 0, largest = -1, error = 0;
  std::string name, off_core;
  for (Phase phase : cadences) {
    share += seen.phase(phase).share;
    error = std::hypot(error, seen.phase(phase).share_error);
    if (seen.phase(phase).share > largest) {
      largest = seen.phase(phase).share;
      name = measure::phase_name(phase);
      const auto waits = seen.surroundings ? seen.surroundings->off_core[static_cast<size_t>(phase)] : std::nullopt;
      off_core = waits && largest > 0
                     ? fmt::format(" (in {:.0f} % of which its thread is on no core: it waits for a disk or a thread)",
                                   100 * std::min(1.0, *waits / largest))
                     : "";
    }
  }
  return {Limit::Cadence,
          removal_gain(share),
          name,
          fmt::format("log, monitor, validation and checkpoints take {:.1f} % of the time, most of it {}{}",
                      100 * share, name, off_core),
          "",
          least_gain(share, error)};
}

LimitScore score_padding(const JobView& job, const Observation& seen) {
  if (!job.computes_padding) return {Limit::Padding, 0, "padding", "the model computes no padding", ""};
  const std::string evidence =
      seen.costs.known
          ? fmt::format("{:.0f} % of a batch is padding, which costs {:.0f} (±{:.0f}) % of forward and backward",
                        100 * seen.padding_share, 100 * seen.costs.padding_share, 100 * 1.96 * seen.costs.padding_error)
          : fmt::format("{:.0f} % of a batch is padding", 100 * seen.padding_share);
  // Samples are never all of one length: what buckets, or narrower ones, could take away.
  const Prior removable = job.buckets ? kNarrowerBuckets : Prior{1 - kLeftByBuckets.mean, kLeftByBuckets.deviation};
  // An item of padding costs no more than a real one. Where the fit says so, it takes something else for padding: long
  // samples stand beside each other, and cost more than in proportion.
  Observation mean = seen, least = seen;
  mean.costs.padding_share = std::clamp(seen.padding_share, 0.0, seen.costs.padding_share);
  least.costs.padding_share =
      std::clamp(seen.costs.padding_share - kInterval * seen.costs.padding_error, 0.0, mean.costs.padding_share);
  return {Limit::Padding,
          predicted_padding_gain(mean, removable.mean, kPaddedItem.mean),
          "padding",
          evidence,
          "",
          predicted_padding_gain(least, std::max(0.0, removable.mean - kInterval * removable.deviation),
                                 kPaddedItem.mean - kInterval * kPaddedItem.deviation)};
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

// What a step costs however many samples it holds: a batch twice as large halves it per sample.
struct FixedShare {
  double mean = 0, error = 0, idle = 0;
};

// What steps of different lengths cost beside their items is not all of it. Workers that share the training threads'
// cores cost the same whatever the length, and so does a little of each sample: both come again with every sample of a
// larger batch.
FixedShare fixed_with_error(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  constexpr double kOtherMiss = 0.25, kIdleMiss = 0.4;  // of what no scope claims; of threads without work
  const PhaseSummary &optimiser = seen.phase(Phase::Optimiser), &other = seen.phase(Phase::Other);
  const double compute = compute_share(seen);
  FixedShare fixed{optimiser.share + other.share, 0, idle_threads(job, seen)};
  fixed.error = std::hypot(optimiser.share_error, other.share_error, kOtherMiss * other.share);
  if (seen.costs.known) {
    const bool spare = machine.allowed_cpus > job.threads || machine.has_cuda;
    const double loader =
        job.workers > 0 && !spare && seen.step_seconds > 0 ? seen.loader_worker_seconds() / seen.step_seconds : 0;
    const Prior paid = paid_by_step(machine.allowed_cpus);
    const double items = 1 - seen.costs.fixed_share;
    const double with_samples = kPerSample.mean * items + paid.mean * loader;
    fixed.mean += compute * std::max(0.0, seen.costs.fixed_share - with_samples);
    fixed.error = std::hypot(fixed.error, compute * std::hypot(seen.costs.fixed_error, kPerSample.deviation * items,
                                                               paid.deviation * loader));
  }
  fixed.mean = std::min(0.99, fixed.mean + fixed.idle);
  fixed.error = std::hypot(fixed.error, kIdleMiss * fixed.idle);
  return fixed;
}

LimitScore score_batch(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  const FixedShare fixed = fixed_with_error(job, seen, machine);
  const double gain = removal_gain(fixed.mean / 2);
  return {Limit::SmallBatch,
          gain,
          "batch_size",
          fmt::format("{:.0f} % of the step does not grow with the batch{}; twice the batch would gain {}{:.0f} %",
                      100 * fixed.mean,
                      fixed.idle > 0
                          ? fmt::format(" (its threads have nothing to do in {:.0f} % of the time)", 100 * fixed.idle)
                          : "",
                      // What comes with each operator is not told by steps that are all alike.
                      seen.costs.known ? "" : "at least ", 100 * gain),
          "",
          least_gain(fixed.mean / 2, fixed.error / 2)};
}

LimitScore score_oversubscription(const JobView& job, const Observation& seen, const MachineFacts& machine) {
  const int wanted = job.workers + std::max(1, job.threads);
  const double waited = seen.surroundings ? seen.surroundings->lost_to_itself() : 0;
  const double cores = std::max(1, machine.allowed_cpus);
  const bool threads = job.threads > machine.allowed_cpus, workers = job.workers > machine.allowed_cpus;
  double share = 0, error = 0;
  if ((threads || workers) && seen.surroundings) {
    // Threads beyond the cores wait in turn, which costs nothing by itself, and a worker's work is the same however
    // many share it. What it costs is the switches, and cores that are idle while a region waits for its last thread.
    const Surroundings& around = *seen.surroundings;
    const double idle = threads && waited > 0
                            ? compute_share(seen) * std::max(0.0, 1 - (around.own + around.others.value_or(0)) / cores)
                            : 0.0;
    share = std::min(0.9, idle + around.switches * kSwitchSeconds / cores);
    error = 0.3 * share;
  } else if (workers && seen.step_seconds > 0) {
    // How they shared the cores was not recorded: a step may win back what it pays for none of them.
    const Prior paid = paid_by_step(machine.allowed_cpus);
    const double loader = seen.loader_worker_seconds() / cores / seen.step_seconds;
    share = std::min(0.5, paid.mean * loader);
    error = paid.deviation * loader;
  }
  return {Limit::Oversubscribed,
          removal_gain(share),
          threads ? "threads" : "workers",
          fmt::format("{} threads want {} cores{}; step times spread by {:.0f} %", wanted, machine.allowed_cpus,
                      waited > 0 ? fmt::format(", {:.1f} of them wait for one at any time",
                                               seen.surroundings->waited.value_or(0))
                                 : "",
                      100 * seen.step_spread),
          "",
          least_gain(share, error)};
}

// What cannot be had for lack of memory is what a larger batch would gain.
LimitScore score_memory(const LimitScore& batch, const Observation& seen, const MachineFacts& machine) {
  constexpr double kFull = 0.92;
  const auto limit = static_cast<double>(machine.memory_limit_bytes);
  const double used = limit > 0 ? static_cast<double>(std::max(seen.peak_bytes, seen.rss_bytes)) / limit : 0;
  const bool full = used > kFull;
  return {
      Limit::Memory,
      full ? batch.gain : 0.0,
      "memory",
      fmt::format("{:.0f} % of the memory limit is in use: a batch twice as large, which would gain {:.0f} %, would "
                  "not fit",
                  100 * used, 100 * batch.gain),
      "",
      full ? batch.at_least() : 0.0};
}

// A cause takes from its symptoms what it explains: a loader that waits for a slow disk is not slow itself, and a disk
// that others keep busy is not.
void explain(std::vector<LimitScore>& scores) {
  const auto gain_of = [&](Limit limit, std::string_view detail) {
    const auto found = std::ranges::find_if(
        scores, [&](const LimitScore& s) { return s.limit == limit && (detail.empty() || s.detail == detail); });
    return found == scores.end() ? 0.0 : found->gain;
  };
  const double reads = gain_of(Limit::SlowDisk, "reads"), saves = gain_of(Limit::SlowDisk, "checkpoints"),
               others = gain_of(Limit::Contended, "disk");
  for (LimitScore& score : scores) {
    const bool by_reads = score.limit == Limit::Data, by_saves = score.limit == Limit::Cadence;
    const bool by_others = score.limit == Limit::SlowDisk && score.detail == "reads";
    const double cause = by_reads ? reads : by_saves ? saves : by_others ? others : 0.0;
    if (cause < kWorthNaming) continue;
    const auto rest = [&](double gain) { return std::max(0.0, (1 + gain) / (1 + cause) - 1); };
    score.sure = rest(score.at_least());
    score.gain = rest(score.gain);
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

// " Perhaps padding-bound: +7 %, of which +1 % is sure." The largest that is not sure enough to be named.
std::string unsure_sentence(std::span<const LimitScore> scores) {
  const auto found = std::ranges::find_if(
      scores, [](const LimitScore& score) { return score.gain >= kWorthNaming && score.limit != Limit::Unknown; });
  if (found == scores.end()) return {};
  return fmt::format(" Perhaps it is {} ({}), too: that would gain {:+.0f} %, but no more than {:.0f} % is sure.",
                     limit_name(found->limit), found->detail, 100 * found->gain, 100 * found->at_least());
}

std::string compute_sentence(const Observation& seen, double share) {
  return fmt::format(
      "Compute-bound: {:.0f} % of the step is forward, backward and optimiser ({:.1f} ms of {:.1f} ms); nothing else "
      "is sure to gain {:.0f} %.",
      100 * share, 1e3 * share * seen.step_seconds, 1e3 * seen.step_seconds, 100 * kWorthNaming);
}

}  // namespace

bool LimitScore::worth_naming() const { return gain >= kWorthNaming && at_least() >= kSurelyGained; }

Diagnosis diagnose(const JobView& job, const Observation& seen, std::vector<Ceiling> all, const MachineFacts& machine,
                   const PlanShapeOf& plan) {
  Diagnosis diagnosis;
  if (seen.steps == 0) {
    diagnosis.sentence = "The run has no finished steps, so there is nothing to judge; run it for at least 20 steps.";
    return diagnosis;
  }
  const LimitScore batch = score_batch(job, seen, machine);
  diagnosis.scores = {score_data(job, seen, all),
                      score_cadence(seen),
                      score_padding(job, seen),
                      score_memory(batch, seen, machine),
                      batch,
                      score_oversubscription(job, seen, machine)};
  for (LimitScore& score : outside_limits(job, seen, machine)) diagnosis.scores.push_back(std::move(score));
  explain(diagnosis.scores);
  std::ranges::stable_sort(diagnosis.scores, [](const LimitScore& a, const LimitScore& b) {
    return std::pair(a.worth_naming(), a.gain) > std::pair(b.worth_naming(), b.gain);
  });
  const LimitScore& first = diagnosis.scores[0];
  const double compute = seen.phase(Phase::Forward).share + seen.phase(Phase::Backward).share +
                         seen.phase(Phase::Optimiser).share + seen.phase(Phase::Reduce).share;
  if (first.worth_naming()) {
    diagnosis.limit = first.limit;
    diagnosis.detail = first.detail;
    diagnosis.sentence = sentence_of(first);
    diagnosis.cure = first.cure;
  } else if (compute >= 0.8) {
    diagnosis.limit = Limit::Compute;
    diagnosis.detail = seen.phase(Phase::Forward).share > seen.phase(Phase::Backward).share ? "forward" : "backward";
    diagnosis.sentence = compute_sentence(seen, compute) + unsure_sentence(diagnosis.scores);
  } else {
    diagnosis.limit = Limit::Balanced;
    diagnosis.sentence =
        fmt::format("Balanced: no single part is sure to gain {:.0f} % if it were free.", 100 * kWorthNaming) +
        unsure_sentence(diagnosis.scores);
  }
  // How much of its GPUs others take, NVML does not say for all drivers, so there is no gain to compare.
  if (seen.surroundings && seen.surroundings->gpu_others.value_or(0) >= 0.5)
    diagnosis.sentence +=
        fmt::format(" Others compute on its GPUs, too ({:.0f} processes); what they take is not seen.",
                    *seen.surroundings->gpu_others);
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
