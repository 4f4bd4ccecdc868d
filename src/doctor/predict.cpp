#include "doctor/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"

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

}  // namespace

double fixed_share(const Observation& seen) {
  const double rest = seen.phase(Phase::Optimiser).share + seen.phase(Phase::Other).share;
  return std::min(0.99, rest + (seen.costs.known ? matrix_share(seen) * seen.costs.fixed_share : 0.0));
}

namespace {

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
  const Ceiling* replay = find_ceiling(all, ExperimentKind::FreeLoader);
  for (int workers : {0, 1, 2, 4, 8}) {
    if (workers == settings.num_workers || workers > model.cores) continue;
    const double now =
        settings.num_workers == 0 ? seen.step_seconds : predicted_step_seconds(model, settings.num_workers);
    double gain = now / predicted_step_seconds(model, workers) - 1.0;
    if (replay != nullptr) gain = std::min(gain, replay->gain_at_most());
    out.push_back(
        {"model.train_ds.num_workers", std::to_string(workers), gain, config::Effect::Nothing,
         fmt::format("{} of loader work beside {} of computing per step, on {} cores",
                     format_seconds(model.loader_seconds), format_seconds(model.compute_seconds), model.cores)});
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

struct Cadence {
  Phase phase;
  ExperimentKind experiment;
  const char* option;
  const char* what;
  int64_t every_now;   // steps; 0 = unknown
  int64_t every_then;  // what is proposed
};

// Less often, not never: what is proposed keeps a share now / then of its cost.
void suggest_cadence(const Cadence& cadence, const Observation& seen, std::span<const Ceiling> all,
                     std::vector<Suggestion>& out) {
  const double share = seen.phase(cadence.phase).share;
  if (share <= 0 || (cadence.every_now > 0 && cadence.every_then <= cadence.every_now)) return;
  const double saved = cadence.every_now > 0 ? 1.0 - static_cast<double>(cadence.every_now) / cadence.every_then : 0.8;
  double gain = removal_gain(share * saved);
  if (const Ceiling* ceiling = find_ceiling(all, cadence.experiment)) gain = std::min(gain, ceiling->gain_at_most());
  out.push_back({cadence.option, std::to_string(cadence.every_then), gain, config::Effect::Nothing,
                 fmt::format("{} takes {:.2g} % of the time{}", cadence.what, 100 * share,
                             cadence.every_now > 0 ? fmt::format(", every {} steps", cadence.every_now) : "")});
}

// A cadence may cost this share of the run; the interval that keeps it there.
int64_t affordable_steps(const Observation& seen, Phase phase, int64_t least) {
  constexpr double kShare = 0.01;
  const double steps = seen.phase(phase).seconds_per_occurrence / std::max(1e-9, kShare * seen.step_seconds);
  const double power = std::pow(10.0, std::floor(std::log10(std::max(1.0, steps))));
  return std::max(least, static_cast<int64_t>(std::ceil(steps / power) * power));
}

void suggest_cadences(const Settings& settings, const Observation& seen, std::span<const Ceiling> all,
                      std::vector<Suggestion>& out) {
  suggest_cadence({Phase::Log, ExperimentKind::NoLogging, "trainer.log_every_n_steps", "logging",
                   settings.log_every_n_steps, affordable_steps(seen, Phase::Log, 50)},
                  seen, all, out);
  // val_check_interval counts batches, before accumulation.
  const int64_t accumulate = std::max<int64_t>(1, settings.accumulate_grad_batches);
  const int64_t validate = affordable_steps(seen, Phase::Validate, 100);
  const size_t before = out.size();
  suggest_cadence({Phase::Validate, ExperimentKind::NoValidation, "trainer.val_check_interval", "validation",
                   settings.validate_every_steps, validate},
                  seen, all, out);
  if (out.size() > before) out.back().value = std::to_string(validate * accumulate);
  if (!settings.monitor_option.empty())
    suggest_cadence({Phase::Monitor, ExperimentKind::NoMonitor, settings.monitor_option.c_str(), "the monitor",
                     settings.monitor_every_steps, affordable_steps(seen, Phase::Monitor, 100)},
                    seen, all, out);
  suggest_cadence(
      {Phase::Checkpoint, ExperimentKind::NoCheckpoint, "exp_manager.checkpoint_callback_params.every_n_train_steps",
       "writing checkpoints", settings.save_every_steps, affordable_steps(seen, Phase::Checkpoint, 100)},
      seen, all, out);
}

void suggest_buckets(const Settings& settings, const Observation& seen, std::vector<Suggestion>& out) {
  if (settings.buckets || seen.padding_share < 0.02) return;
  const std::string cost =
      seen.costs.known ? fmt::format("{:.0f} % of a batch is padding, and it costs {:.0f} % of forward and backward",
                                     100 * seen.padding_share, 100 * seen.costs.padding_share)
                       : fmt::format("{:.0f} % of a batch is padding", 100 * seen.padding_share);
  out.push_back({"model.train_ds.num_buckets", "8", predicted_padding_gain(seen, 0.7), config::Effect::Order,
                 cost + "; 8 buckets remove about 70 % of it"});
}

void suggest_batch(const Settings& settings, const Observation& seen, std::vector<Suggestion>& out) {
  if (settings.batch_size <= 0 || !seen.costs.known) return;
  const double share = fixed_share(seen);
  out.push_back({"model.train_ds.batch_size", std::to_string(2 * settings.batch_size), removal_gain(share / 2),
                 config::Effect::Optimisation,
                 fmt::format("{:.0f} % of a step does not grow with the batch", 100 * share)});
}

void suggest_cache(const Settings& settings, const Observation& seen, std::span<const Ceiling> all,
                   std::vector<Suggestion>& out) {
  if (settings.cache || seen.loader_worker_seconds() <= 0) return;
  const double saved = seen.stage(measure::Stage::Read) + seen.stage(measure::Stage::Decode);
  const double paid = settings.num_workers == 0 ? saved : 0.75 * saved;
  double gain = removal_gain(std::min(0.95, paid / seen.step_seconds));
  if (const Ceiling* loader = find_ceiling(all, ExperimentKind::FreeLoader))
    gain = std::min(gain, loader->gain_at_most());
  out.push_back({"model.train_ds.cache", "memory", gain, config::Effect::Nothing,
                 fmt::format("reading and decoding take {} of worker time per step", format_seconds(saved))});
}

}  // namespace

double predicted_precision_gain(const Observation& seen, double rate_now, double rate_then) {
  if (rate_now <= 0 || rate_then <= 0) return 0;
  // About three fifths of forward and backward is matrix work in the tasks here; the rest is bound by memory and stays.
  const double moved = 0.6 * matrix_share(seen);
  return 1.0 / (1.0 - moved + moved * rate_now / rate_then) - 1.0;
}

double predicted_padding_gain(const Observation& seen, double removed) {
  const double share = matrix_share(seen);
  if (seen.costs.known) return removal_gain(share * seen.costs.padding_share * removed);
  const double kept = 1.0 - seen.padding_share, kept_then = 1.0 - seen.padding_share * (1.0 - removed);
  const double work = kept_then > 0 ? kept / kept_then : 1.0;
  return 1.0 / (1.0 - share + share * work) - 1.0;
}

std::vector<Suggestion> predict_gains(const Settings& settings, const Observation& seen, std::span<const Ceiling> all,
                                      const MachineFacts& machine) {
  std::vector<Suggestion> out;
  if (seen.steps == 0) return out;
  suggest_workers(settings, seen, all, machine, out);
  suggest_precision(settings, seen, machine, out);
  suggest_buckets(settings, seen, out);
  suggest_batch(settings, seen, out);
  suggest_cadences(settings, seen, all, out);
  suggest_cache(settings, seen, all, out);
  std::stable_sort(out.begin(), out.end(),
                   [](const Suggestion& a, const Suggestion& b) { return a.predicted_gain > b.predicted_gain; });
  return out;
}

}  // namespace redline::doctor
