#include "app/doctor_runs.h"

#include <fmt/format.h>

#include <algorithm>

#include "config/job.h"
#include "core/log.h"
#include "measure/faults.h"
#include "train/run/training_run.h"

namespace redline::app {

namespace {

train::TrialOptions options_for(doctor::ExperimentKind kind) {
  train::TrialOptions options;
  options.replay_batch = kind == doctor::ExperimentKind::ReplayBatch;
  options.loader_only = kind == doctor::ExperimentKind::LoaderOnly;
  options.log = kind != doctor::ExperimentKind::NoLogging;
  options.validate = kind != doctor::ExperimentKind::NoValidation;
  options.monitor = kind != doctor::ExperimentKind::NoMonitor;
  return options;
}

double seconds_per_sample(const std::vector<measure::StepRow>& rows) {
  double seconds = 0, samples = 0;
  for (const auto& row : rows) {
    seconds += static_cast<double>(row.wall_ns) * 1e-9;
    samples += row.samples;
  }
  return samples > 0 ? seconds / samples : 0;
}

const config::ResolvedValue* value_of(const config::Resolved& resolved, const char* path) {
  return resolved.find(path);
}

int64_t int_of(const config::Resolved& resolved, const char* path, int64_t fallback) {
  const auto* value = value_of(resolved, path);
  return value != nullptr ? value->value.as_int().value_or(fallback) : fallback;
}

std::string text_of(const config::Resolved& resolved, const char* path) {
  const auto* value = value_of(resolved, path);
  return value != nullptr && value->value.is_scalar() ? value->value.text() : std::string();
}

}  // namespace

DoctorRuns::DoctorRuns(const task::Registry& registry, const config::RequestSource& source, const MachineFacts& machine)
    : registry_(registry), source_(source), machine_(machine) {}

train::Trial& DoctorRuns::trial(doctor::ExperimentKind kind) {
  for (auto& [known, trial] : trials_)
    if (known == kind) return *trial;
  trials_.emplace_back(kind, std::make_unique<train::Trial>(registry_, source_, machine_, options_for(kind)));
  trials_.back().second->run(2);  // warm-up: first touches and allocator growth
  return *trials_.back().second;
}

std::vector<measure::StepRow> DoctorRuns::observe(int64_t steps) {
  log_info(fmt::format("Observing {} steps ...", steps));
  return trial(doctor::ExperimentKind::AsIs).run(steps).rows;
}

std::vector<doctor::Ceiling> DoctorRuns::ceilings(const doctor::Observation& seen, int blocks) {
  std::vector<doctor::ExperimentBlock> measured;
  const auto wanted = doctor::wanted_experiments(settings(), seen);
  const int64_t steps = std::clamp<int64_t>(seen.steps / 10, 3, 50);
  for (int block = 0; block < blocks; ++block) {
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Forward, then backward, so that drift of the machine cancels.
      const auto kind = wanted[block % 2 == 0 ? i : wanted.size() - 1 - i].kind;
      if (kind == doctor::ExperimentKind::WarmRead || kind == doctor::ExperimentKind::ColdRead ||
          kind == doctor::ExperimentKind::NoCheckpoint)
        continue;
      if (block == 0) log_info(fmt::format("Ceiling '{}' ...", doctor::experiment_name(kind)));
      measured.push_back({kind, block, seconds_per_sample(trial(kind).run(steps).rows)});
    }
  }
  return doctor::ceilings(measured);
}

doctor::Settings DoctorRuns::settings() const {
  const config::Resolved& resolved = trials_.front().second->job().resolved();
  doctor::Settings settings;
  settings.num_workers = static_cast<int>(int_of(resolved, "model.train_ds.num_workers", 0));
  settings.prefetch_factor = static_cast<int>(int_of(resolved, "model.train_ds.prefetch_factor", 2));
  settings.intra_op_threads = static_cast<int>(int_of(resolved, "trainer.intra_op_threads", machine_.allowed_cpus));
  settings.batch_size = int_of(resolved, "model.train_ds.batch_size", 0);
  settings.micro_batch_size = int_of(resolved, "model.train_ds.micro_batch_size", 0);
  settings.accumulate_grad_batches = int_of(resolved, "trainer.accumulate_grad_batches", 1);
  settings.precision = text_of(resolved, "trainer.precision");
  settings.log_every_n_steps = int_of(resolved, "trainer.log_every_n_steps", 50);
  settings.buckets = text_of(resolved, "model.train_ds.use_bucketing") == "true";
  settings.cache = text_of(resolved, "model.train_ds.cache") != "none";
  return settings;
}

std::string DoctorRuns::config_yaml() const { return trials_.front().second->job().resolved().dump_yaml(); }

void DoctorRuns::print_operators(const MachineFacts& machine) {
  (void)machine;
  double total = 0;
  const auto times = trial(doctor::ExperimentKind::AsIs).run_operators();
  for (const auto& time : times) total += time.self_seconds;
  fmt::print("Operators of one step ({:.1f} ms in operators):\n", 1e3 * total);
  for (size_t i = 0; i < std::min<size_t>(20, times.size()); ++i)
    fmt::print("  {:>8.2f} ms {:>5.1f} %  {:<40} x{}\n", 1e3 * times[i].self_seconds,
               100 * times[i].self_seconds / std::max(total, 1e-12), times[i].name, times[i].calls);
  fmt::print("\n");
}

config::RequestSource selftest_source(config::RequestSource source) {
  for (const char* word : {"trainer.log_every_n_steps=2", "trainer.val_check_interval=5", "trainer.limit_val_batches=1",
                           "trainer.num_sanity_val_steps=0"})
    source.overrides.insert(source.overrides.begin(), word);
  return source;
}

doctor::Settings settings_of_record(const measure::RunRecord& record) {
  doctor::Settings settings;
  if (record.config_yaml.empty()) return settings;
  const config::Node tree = config::read_yaml_text(record.config_yaml, "config.resolved.yaml");
  const auto number = [&](const char* path, int64_t fallback) {
    const config::Node* node = tree.find_path(path);
    return node != nullptr ? node->as_int().value_or(fallback) : fallback;
  };
  const auto text = [&](const char* path) {
    const config::Node* node = tree.find_path(path);
    return node != nullptr && node->is_scalar() ? node->text() : std::string();
  };
  settings.num_workers = static_cast<int>(number("model.train_ds.num_workers", 0));
  settings.intra_op_threads = static_cast<int>(number("trainer.intra_op_threads", 0));
  settings.batch_size = number("model.train_ds.batch_size", 0);
  settings.precision = text("trainer.precision");
  settings.log_every_n_steps = number("trainer.log_every_n_steps", 0);
  settings.buckets = text("model.train_ds.use_bucketing") == "true";
  settings.cache = !text("model.train_ds.cache").empty() && text("model.train_ds.cache") != "none";
  return settings;
}

}  // namespace redline::app
