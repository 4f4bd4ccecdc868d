#include "tune/experiments.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "core/precision.h"
#include "tune/experiments/cold_files.h"
#include "tune/trials/trial_pool.h"

namespace redline::tune {

namespace {

constexpr int64_t kWarmup = 3;  // steps: first touches and allocator growth

train::TrialOptions options_for(doctor::ExperimentKind kind) {
  train::TrialOptions options;
  options.free_loader = kind == doctor::ExperimentKind::FreeLoader;
  options.loader_only = kind == doctor::ExperimentKind::LoaderOnly;
  options.log = kind != doctor::ExperimentKind::NoLogging;
  options.validate = kind != doctor::ExperimentKind::NoValidation;
  options.monitor = kind != doctor::ExperimentKind::NoMonitor;
  options.checkpoint = kind != doctor::ExperimentKind::NoCheckpoint;
  return options;
}

}  // namespace

Experiments::Experiments(const task::Registry& registry, const config::RequestSource& source,
                         const MachineFacts& machine, const std::filesystem::path& scratch)
    : jobs_{registry, source, machine} {
  // Mistakes in the job's text are about the job, not about its first step.
  train::Job::read(registry, source, machine);
  train::TrialOptions options = options_for(doctor::ExperimentKind::AsIs);
  options.scratch = scratch;
  trial_ = start_job(jobs_, source, options, "diagnose", [](train::Trial& trial) { trial.run(kWarmup); });
  view_ = view_job(trial_->job(), trial_->task());
  view_.steps_per_epoch = trial_->steps_per_epoch();
  start_ = trial_->state();
}

Look Experiments::look(int64_t steps) {
  log_info(fmt::format("Observing {} steps ...", steps));
  LookOptions options;
  options.steps = steps;
  options.log_every_n_steps = view_.log_every_n_steps;
  Look look = look_at(*trial_, options);
  if (static_cast<int64_t>(look.rows.size()) < steps)
    log_warning(fmt::format("Only {} of {} steps were made; what follows rests on those.", look.rows.size(), steps));
  view_.samples = static_cast<int64_t>(static_cast<double>(view_.steps_per_epoch) * look.seen.samples_per_step);
  return look;
}

doctor::Diagnosis Experiments::diagnose(const Look& look, std::vector<doctor::Ceiling> ceilings) {
  return doctor::diagnose(view_, look.seen, std::move(ceilings), jobs_.machine, [&](const Setting& setting) {
    const QuietLog quiet;
    return plan_shape(jobs_, trial_->task(), setting);
  });
}

double Experiments::run_block(doctor::ExperimentKind kind, int64_t steps) {
  trial_->vary(options_for(kind));
  if (kind == doctor::ExperimentKind::ColdRead) drop_from_page_cache(files_);
  trial_->load(start_);
  const std::vector<measure::StepRow> rows = trial_->run(steps + 1).rows;
  double seconds = 0, samples = 0;
  for (size_t i = 1; i < rows.size(); ++i) {  // the first waits for a loader that starts anew
    seconds += static_cast<double>(rows[i].wall_ns) * 1e-9;
    samples += rows[i].samples;
  }
  return samples > 0 ? seconds / samples : 0;
}

std::vector<doctor::Ceiling> Experiments::ceilings(const Look& look, int blocks, double seconds) {
  using doctor::ExperimentKind;
  if (blocks <= 0) return {};
  const doctor::Observation& seen = look.seen;
  const int64_t epoch = std::max<int64_t>(2, trial_->steps_per_epoch() - kWarmup - 1);
  const auto affordable = static_cast<int64_t>(seconds / (4.0 * blocks * std::max(1e-6, seen.step_seconds)));
  const int64_t steps = std::min(epoch, std::clamp<int64_t>(affordable, 4, 40));
  auto wanted = doctor::wanted_experiments(view_, seen, steps);
  files_ = data_files(trial_->job().train_ds());
  if (files_.empty()) std::erase_if(wanted, [](const auto& e) { return e.kind == ExperimentKind::ColdRead; });
  log_info(fmt::format("Ceilings: {} conditions, {} blocks of {} steps each ...", wanted.size(), blocks, steps));
  std::vector<doctor::ExperimentBlock> measured;
  for (int block = 0; block < blocks; ++block)
    for (size_t i = 0; i < wanted.size(); ++i) {
      // Forward, then backward, so that drift of the machine cancels.
      const auto kind = wanted[block % 2 == 0 ? i : wanted.size() - 1 - i].kind;
      const double cost = run_block(kind, steps);
      if (cost > 0) measured.push_back({kind, block, cost});
    }
  trial_->vary(options_for(ExperimentKind::AsIs));
  std::vector<doctor::Ceiling> found = doctor::ceilings(measured);
  const auto add_rare = [&](ExperimentKind kind, const std::vector<double>& occurrences, double rate) {
    if (doctor::find_ceiling(found, kind) != nullptr) return;
    if (auto ceiling = doctor::cadence_ceiling(kind, occurrences, rate, seen.step_seconds))
      found.push_back(std::move(*ceiling));
  };
  add_rare(ExperimentKind::NoLogging, {seen.cadence_seconds.log}, seen.cadences_per_step.log);
  add_rare(ExperimentKind::NoValidation, look.validations, seen.cadences_per_step.validate);
  add_rare(ExperimentKind::NoMonitor, look.monitors, seen.cadences_per_step.monitor);
  add_rare(ExperimentKind::NoCheckpoint, look.checkpoints, seen.cadences_per_step.checkpoint);
  return found;
}

std::vector<doctor::OperatorLine> Experiments::operators() {
  trial_->run_operators();  // once for warm-up
  const auto times = trial_->run_operators();
  // A peak is at least what was reached: on a busy machine the short probe can fall far below the operators themselves.
  double total = 0, reached = 0;
  for (const auto& time : times) {
    total += time.self_seconds;
    if (time.self_seconds > 0) reached = std::max(reached, time.flops / time.self_seconds / 1e9);
  }
  const Precision asked = parse_precision(view_.precision).value_or(Precision::Fp32);
  std::vector<doctor::OperatorLine> lines;
  for (const auto& time : times) {
    doctor::OperatorLine line{train::operator_words(time.name),
                              time.calls,
                              time.self_seconds,
                              total > 0 ? time.self_seconds / total : 0,
                              -1,
                              {},
                              false};
    const Precision precision = time.dtype == torch::kBFloat16  ? Precision::Bf16Mixed
                                : time.dtype == torch::kFloat16 ? Precision::Fp16Mixed
                                                                : Precision::Fp32;
    if (at::isFloatingType(time.dtype) && time.dtype != torch::kFloat64) line.number = number_name(precision);
    line.fell_back = time.dtype == torch::kFloat32 && asked != Precision::Fp32;
    const double probed = matrix_gflops(jobs_.machine, precision);
    if (time.flops > 0 && probed > 0 && time.self_seconds > 0)
      line.share_of_peak = time.flops / time.self_seconds / (std::max(probed, reached) * 1e9);
    lines.push_back(std::move(line));
  }
  return lines;
}

config::RequestSource selftest_source(const task::Registry& registry, config::RequestSource source,
                                      const MachineFacts& machine) {
  const auto job = train::Job::read(registry, source, machine);
  const config::Resolved& resolved = job->resolved();
  const int64_t accumulate = job->trainer().accumulate_grad_batches;
  std::vector<std::string> words = {"trainer.log_every_n_steps=2",
                                    fmt::format("trainer.val_check_interval={}", 4 * accumulate),
                                    "trainer.limit_val_batches=1",
                                    "trainer.num_sanity_val_steps=0",
                                    "exp_manager.checkpoint_callback_params.every_n_train_steps=3",
                                    "exp_manager.checkpoint_callback_params.save_top_k=1"};
  const task::TaskEntry& entry = job->entry();
  if (resolved.find(entry.monitor_option) != nullptr) {
    words.push_back(entry.monitor_option + "=2");
    words.push_back(entry.monitor_plot_option + "=1000000");
  }
  // A validation reads through the same stages; as many samples as a step, so that a slow stage shows in the step
  // first.
  if (const auto* batch = resolved.find("model.train_ds.batch_size"); batch != nullptr && batch->value.is_scalar())
    words.push_back("model.validation_ds.batch_size=" + batch->value.text());
  source.overrides.insert(source.overrides.begin(), words.begin(), words.end());
  return source;
}

JobView view_of_record(const measure::RunRecord& record, const task::Registry& registry) {
  JobView view;
  if (record.config_yaml.empty()) return view;
  const config::Node tree = config::read_yaml_text(record.config_yaml, "config.resolved.yaml");
  const config::Node* const name = tree.find_path("task");
  for (const task::TaskEntry& entry : registry.entries()) {
    if (name == nullptr || !name->is_scalar() || entry.name != name->text()) continue;
    view.task = entry.name;
    view.switches = config::search_space(train::job_schema(entry)->schema, tree);
    doctor::read_switches(view);
  }
  for (const measure::Event& event : record.events)
    if (event.kind == "loop.cost")
      if (const measure::FieldValue* computes = event.find("computes_padding"))
        if (const auto* known = std::get_if<bool>(computes)) view.computes_padding = *known;
  return view;
}

}  // namespace redline::tune
