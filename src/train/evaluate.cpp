#include "train/evaluate.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/autocast.h"
#include "train/checkpoint/loading.h"
#include "train/guards/precision_guard.h"
#include "train/step/batches.h"
#include "train/weights.h"

namespace redline::train {

namespace {

// A sample that cannot be read has a substitute in its batch: a row of another sample, which has its own row too. It is
// no prediction for the one that is bad, so each sample keeps one row, in the order of the data.
void leave_out_substitutes(Predictions& result) {
  std::map<int64_t, int64_t> row_of;
  for (size_t row = 0; row < result.sample_ids.size(); ++row)
    row_of.emplace(result.sample_ids[row], static_cast<int64_t>(row));
  const size_t missing = result.sample_ids.size() - row_of.size();
  if (missing == 0) return;
  log_warning(fmt::format("{} of {} samples could not be used and have no row; sample_ids says whose rows there are.",
                          missing, result.sample_ids.size()));
  std::vector<int64_t> rows, ids;
  std::vector<std::string> names;
  for (const auto& [id, row] : row_of) {
    ids.push_back(id);
    names.push_back(result.names[static_cast<size_t>(row)]);
    rows.push_back(row);
  }
  result.sample_ids = std::move(ids);
  result.names = std::move(names);
  for (auto& [name, tensor] : result.outputs) tensor = tensor.index_select(0, torch::tensor(rows));
}

}  // namespace

ChosenWeights choose_weights(const std::filesystem::path& run, const std::string& which,
                             const ExpManagerConfig& config) {
  ChosenWeights chosen;
  CheckpointState state;
  if (which == "last" || which == "best") {
    std::optional<LoadedCheckpoint> loaded;
    if (which == "best") {
      const auto best =
          best_generation(run / "checkpoints", config.checkpoint_callback_params.monitor.value_or("val_loss"),
                          config.checkpoint_callback_params.mode);
      if (!best)
        throw CheckpointError(fmt::format("The run {} has no checkpoint with the metric '{}'; use --checkpoint last.",
                                          run.string(),
                                          config.checkpoint_callback_params.monitor.value_or("val_loss")));
      loaded = CheckpointStore::load(best->path);
    } else {
      loaded = load_checkpoint(run / "checkpoints");
    }
    chosen.path = loaded->info.path;
    chosen.step = loaded->info.step;
    state = std::move(loaded->state);
  } else {
    // A path, or the step of one of the run's own.
    const auto step = std::filesystem::exists(which) ? std::nullopt : parse_int(which);
    LoadedCheckpoint loaded =
        step ? load_step(run / "checkpoints", *step, "--checkpoint " + printable(which)) : CheckpointStore::load(which);
    chosen.path = step ? loaded.info.path : std::filesystem::path(which);
    chosen.step = loaded.info.step;
    state = std::move(loaded.state);
  }
  if (!state.state_json.empty()) chosen.loop = LoopState::from_json(state.state_json);
  chosen.tensors = {state.model.begin(), state.model.end()};
  // With an average the run validated it, so it is what the run stands for.
  if (config.ema.enable && !config.ema.validate_original_weights)
    for (const auto& [name, tensor] : state.optimizer)
      if (starts_with(name, "ema.")) chosen.tensors[name.substr(4)] = tensor;
  return chosen;
}

void load_chosen(const ChosenWeights& chosen, task::Task& task) {
  const WeightsReport report = load_weights(task.module(), chosen.tensors);
  if (!report.complete())
    throw CheckpointError(fmt::format("{} does not fit the run's model: {}.", chosen.path.string(), report.text()));
  if (chosen.loop)
    task.load_state_json(chosen.loop->task_state);
  else if (task.state_json() != "{}")
    log_info(
        fmt::format("{} holds weights only: what the task counts over a run (such as a KL weight that grows) "
                    "begins anew, so the loss may not be the one that was recorded.",
                    chosen.path.string()));
}

std::unique_ptr<Job> read_run_job(const task::Registry& registry, const std::filesystem::path& run,
                                  const std::vector<std::string>& overrides, const MachineFacts& machine) {
  const std::filesystem::path file = run / "config.resolved.yaml";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    throw DataError(fmt::format("{} is no run directory: it has no config.resolved.yaml.", run.string()));
  config::RequestSource source;
  source.file = file;
  source.overrides = overrides;
  return Job::read(registry, source, machine);
}

ValidationResult evaluate(const Job& job, task::Task& task, const ChosenWeights& chosen) {
  // A task that brings its own samples has a loader for either part: without a test_ds it is the validation's.
  const bool on_test = job.test_ds().given();
  auto loader = on_test ? job.build_loader(task, Job::Part::Test, {}) : nullptr;
  if (!loader) loader = job.build_loader(task, Job::Part::Validation, {});
  if (!loader) throw ConfigError("The job has neither model.test_ds nor model.validation_ds: nothing to evaluate on.");
  ValidationSettings settings;
  settings.seed = job.seed();
  settings.precision = job.precision();
  // What the run resolved, also where this machine would choose otherwise; and its guard may have left that precision:
  // the run then validated in the safer one.
  if (chosen.loop && (job.precision_was_chosen() || chosen.loop->precision_name == precision_name(job.precision()))) {
    PrecisionGuard guard(job.trainer().guards, read_precision(chosen.loop->precision_name));
    guard.restore(chosen.loop->precision);
    settings.precision = guard.precision();
  }
  settings.device = job.device();
  settings.limit_batches = on_test
                               ? parse_count_or_share(job.trainer().limit_test_batches, "trainer.limit_test_batches")
                               : parse_count_or_share(job.trainer().limit_val_batches, "trainer.limit_val_batches");
  MemoryGuard memory;
  device::CopyStream stream(settings.device.str());
  ValidationResult result = validate(task, *loader, settings, memory, &stream);
  if (on_test) return result;
  for (const Job::NamedLoader& further : job.build_more_validation(task, {}))
    for (const auto& [metric, value] : validate(task, *further.loader, settings, memory, &stream).metrics)
      result.metrics[metric + "/" + further.name] = value;
  return result;
}

Predictions predict(const Job& job, task::Task& task) {
  const auto loader = job.build_loader(task, Job::Part::Validation, {});
  if (!loader) throw ConfigError("There is no data to predict on.");
  const torch::NoGradGuard no_grad;
  task.module().eval();
  device::CopyStream stream(job.device().str());
  PredictionRows result;
  bool any = false;
  int64_t bad = 0;
  loader->seek(0, 0);
  while (const auto batch = loader->next()) {
    bad += batch->num_bad;
    if (batch->sample_ids.empty()) continue;
    const task::Batch rows = to_task_batch(*batch, &stream);
    task::Context context(job.seed(), -1, /*training=*/false, rows.sample_ids);
    context.device = job.device();
    const device::AutocastScope precision(device::kind_of(job.device()), job.precision());
    std::vector<std::string> names;
    for (const int64_t id : rows.sample_ids) names.push_back(loader->sample_name(id));
    result.add(rows.sample_ids, names, task.predict(rows, context));
    any = true;
  }
  if (!any) throw DataError("There are no samples to predict on: none was left after the filters of the data set.");
  Predictions predictions = result.finish();
  if (predictions.outputs.empty())
    throw DataError(fmt::format("Task '{}' gave no output with one row per sample.", job.entry().name));
  if (bad > 0) leave_out_substitutes(predictions);
  return predictions;
}

}  // namespace redline::train
