#include "doctor/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace redline::doctor {

using measure::Phase;

double predicted_step_seconds(const LoaderModel& model, int workers) {
  const double compute = model.compute_seconds, loader = model.loader_seconds;
  if (workers <= 0) return compute + loader;
  if (model.accelerator) return std::max(compute, loader / std::min(workers, model.cores));
  const int spare = model.cores - model.threads;
  if (spare >= 1) return std::max(compute, loader / std::min(workers, spare));
  // No spare core: a worker shares a core with a training thread, and a parallel region waits for its slowest thread,
  // so most of the loader's time is paid by the step. Three quarters is what lies between perfect sharing (1 / cores)
  // and none (1).
  const double paid = model.cores > 1 ? 0.75 : 1.0;
  return std::max({compute + paid * loader, loader / std::min(workers, model.cores)});
}

namespace {

double matrix_share(const Observation& seen) {
  return seen.phase(Phase::Forward).share + seen.phase(Phase::Backward).share;
}

double removal_gain(double share) { return share < 1 ? 1.0 / (1.0 - share) - 1.0 : 0.0; }

void suggest_workers(const Settings& settings, const Observation& seen, std::span<const Ceiling> all,
                     const MachineFacts& machine, std::vector<Suggestion>& out) {
  LoaderModel model;
  model.loader_seconds = seen.loader_worker_seconds();
  model.compute_seconds = seen.step_seconds - seen.phase(Phase::Wait).seconds_per_step;
  model.threads = std::max(1, settings.intra_op_threads);
  model.cores = std::max(1, machine.allowed_cpus);
  model.accelerator = machine.has_cuda;
  if (model.loader_seconds <= 0) return;
  const Ceiling* replay = find_ceiling(all, ExperimentKind::ReplayBatch);
  for (int workers : {0, 1, 2, 4, 8}) {
    if (workers == settings.num_workers || workers > model.cores) continue;
    const double now =
        settings.num_workers == 0 ? seen.step_seconds : predicted_step_seconds(model, settings.num_workers);
    double gain = now / predicted_step_seconds(model, workers) - 1.0;
    if (replay != nullptr) gain = std::min(gain, replay->gain_at_most());
    out.push_back({"model.train_ds.num_workers", std::to_string(workers), gain, config::Effect::Nothing,
                   fmt::format("{:.2f} ms of loader work beside a step of {:.2f} ms on {} cores",
                               1e3 * model.loader_seconds, 1e3 * model.compute_seconds, model.cores)});
  }
}

void suggest_precision(const Settings& settings, const Observation& seen, const MachineFacts& machine,
                       std::vector<Suggestion>& out) {
  const auto rate = [&](const std::string& precision) {
    if (precision == "bf16-mixed") return machine.gemm_bf16_gflops;
    if (precision == "16-mixed") return machine.gemm_fp16_gflops;
    return machine.gemm_fp32_gflops;
  };
  const double now = rate(settings.precision);
  if (now <= 0) return;
  for (const char* precision : {"32-true", "bf16-mixed", "16-mixed"}) {
    if (precision == settings.precision || rate(precision) <= 0) continue;
    out.push_back({"trainer.precision", precision, predicted_precision_gain(seen, now, rate(precision)),
                   config::Effect::Numerics,
                   fmt::format("matrix products at {:.0f} instead of {:.0f} GFLOP/s in {:.0f} % of the step",
                               rate(precision), now, 100 * matrix_share(seen))});
  }
}

void suggest_cadence(Phase phase, const char* option, const char* value, const char* what, ExperimentKind experiment,
                     const Observation& seen, std::span<const Ceiling> all, std::vector<Suggestion>& out) {
  if (seen.phase(phase).occurrences == 0) return;
  const Ceiling* ceiling = find_ceiling(all, experiment);
  const double gain = ceiling != nullptr ? std::max(0.0, ceiling->gain()) : removal_gain(seen.phase(phase).share);
  out.push_back({option, value, gain, config::Effect::Nothing,
                 fmt::format("{} takes {:.1f} % of the time", what, 100 * seen.phase(phase).share)});
}

}  // namespace

double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then) {
  if (rate_now <= 0 || rate_then <= 0) return 0;
  // About three fifths of forward and backward is matrix work in the tasks here; the rest is bound by memory and stays.
  const double moved = 0.6 * matrix_share(seen);
  return 1.0 / (1.0 - moved + moved * rate_now / rate_then) - 1.0;
}

double predicted_padding_gain(const Observation& seen, double removed) {
  const double kept = 1.0 - seen.padding_share, kept_then = 1.0 - seen.padding_share * (1.0 - removed);
  const double work = kept_then > 0 ? kept / kept_then : 1.0;
  const double share = matrix_share(seen);
  return 1.0 / (1.0 - share + share * work) - 1.0;
}

std::vector<Suggestion> predict_gains(const Settings& settings, const Observation& seen, std::span<const Ceiling> all,
                                      const MachineFacts& machine) {
  std::vector<Suggestion> out;
  if (seen.steps == 0) return out;
  suggest_workers(settings, seen, all, machine, out);
  suggest_precision(settings, seen, machine, out);
  if (!settings.buckets && seen.padding_share > 0.02) {
    out.push_back({"model.train_ds.bucketing", "true", predicted_padding_gain(seen, 0.7), config::Effect::Order,
                   fmt::format("{:.0f} % of what is computed is padding; buckets remove about 70 % of it",
                               100 * seen.padding_share)});
  }
  suggest_cadence(Phase::Log, "trainer.log_every_n_steps", "50", "logging", ExperimentKind::NoLogging, seen, all, out);
  suggest_cadence(Phase::Validate, "trainer.val_check_interval", "1.0", "validation", ExperimentKind::NoValidation,
                  seen, all, out);
  suggest_cadence(Phase::Monitor, "monitor.update_frequency", "200", "the monitor", ExperimentKind::NoMonitor, seen,
                  all, out);
  suggest_cadence(Phase::Checkpoint, "trainer.checkpoint_every_n_steps", "auto", "writing checkpoints",
                  ExperimentKind::NoCheckpoint, seen, all, out);
  if (!settings.cache && seen.loader_worker_seconds() > 0) {
    const double saved = seen.stage(measure::Stage::Read) + seen.stage(measure::Stage::Decode);
    const double paid = settings.num_workers == 0 ? saved : 0.75 * saved;
    out.push_back({"model.train_ds.cache", "memory", removal_gain(std::min(0.95, paid / seen.step_seconds)),
                   config::Effect::Nothing, fmt::format("reading and decoding take {:.2f} ms of a step", 1e3 * saved)});
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Suggestion& a, const Suggestion& b) { return a.predicted_gain > b.predicted_gain; });
  return out;
}

}  // namespace redline::doctor
