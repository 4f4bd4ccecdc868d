#include "tune/trials/job_source.h"

#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/build_loader.h"
#include "task/compiled_part.h"

namespace redline::tune {

config::RequestSource JobSource::with(const Setting& setting) const {
  config::RequestSource changed = source;
  for (const auto& [path, value] : combine(base, complete ? complete(setting) : setting)) {
    if (path == kPresetKey)
      changed.preset = value;
    else
      (named ? changed.overrides : changed.tuned).push_back(path + "=" + value);
  }
  return changed;
}

std::vector<JobView::Counted> counted_options(const train::Job& job) {
  using config::Counts;
  const bool poly = job.optim().sched && train::counts_micro_iterations(*job.optim().sched);
  std::vector<JobView::Counted> counted;
  for (const config::ResolvedValue& value : job.resolved().values()) {
    if (value.row == nullptr || !value.value.is_scalar()) continue;
    Counts counts = value.row->counts;
    if (counts != Counts::Steps && counts != Counts::Batches) continue;
    if (starts_with(value.path, "model.validation_ds") || starts_with(value.path, "model.test_ds")) continue;
    if (poly && starts_with(value.path, "model.optim.sched.")) counts = Counts::Batches;
    if (value.path == "trainer.max_steps" && job.trainer().max_iters) continue;  // follows from max_iters
    const auto number = parse_int(value.value.text());
    if (number && *number > 0) counted.push_back({value.path, counts, *number, value.row->cadence});
  }
  return counted;
}

JobView view_job(const train::Job& job, task::Task& task) {
  JobView view;
  view.task = job.entry().name;
  view.switches = config::search_space(job.resolved());
  doctor::read_switches(view);
  view.has_cuda = job.machine().has_cuda;
  view.batch_statistics = task.batch_statistics();
  view.computes_padding = task.computes_padding();
  view.supports_channels_last = task.supports_channels_last();
  view.compile_refusal = compile_refusal(task);
  view.channels_last = job.channels_last(task);
  const data::DatasetConfig& data = job.train_ds();
  const train::TrainerConfig& trainer = job.trainer();
  view.ragged = task.kind()->longest(data).has_value();
  view.images = task.kind()->decodes_pictures();
  view.bounded_by_length = data.batch_duration.has_value() || data.batch_tokens.has_value();
  view.max_steps = trainer.max_steps;
  view.max_iters = trainer.max_iters.value_or(0);
  view.max_epochs = trainer.max_epochs;
  view.counted = counted_options(job);
  view.bound_to_batch = job.bound_to_batch();
  if (job.optim().sched) view.min_lr = job.optim().sched->min_lr;
  if (job.exp_manager().ema.enable) view.ema_decay = job.exp_manager().ema.decay;
  view.optimizer = job.optim().name;
  view.scale_lr = job.optim().scale_lr;
  for (const config::ResolvedValue& value : job.resolved().values())
    if (value.origin.kind == config::OriginKind::Flag) view.pinned.insert(value.path);
  return view;
}

namespace {

struct Planned {
  std::unique_ptr<train::Job> job;
  data::OpenedData data;
  std::shared_ptr<const data::Planner> planner;
  data::TaskNeeds needs;
};

Planned plan_job(const JobSource& jobs, const task::Task& task, const Setting& setting) {
  Planned p;
  p.job = train::Job::read(jobs.registry, jobs.with(setting), jobs.machine);
  p.needs = p.job->task_needs(task, train::Job::Part::Train);
  p.data = data::open_data(p.job->train_ds(), p.needs);
  p.planner = data::make_planner(p.job->train_ds(), p.needs, p.data);
  return p;
}

constexpr int64_t kMostSteps = 64;

}  // namespace

std::optional<PlanShape> plan_shape(const JobSource& jobs, const task::Task& task, const Setting& setting) {
  try {
    const Planned p = plan_job(jobs, task, setting);
    const auto plan = p.planner->epoch(0);
    const data::SplitSettings split = data::split_settings(p.job->train_ds(), p.needs, p.planner->settings());
    const double cut = p.planner->settings().cut_length;
    const auto length = [&](int64_t sample) { return std::min(cut, p.data.source->length(sample)); };
    const int64_t steps = std::min(kMostSteps, plan->num_steps());
    if (steps == 0) return std::nullopt;
    double real = 0, padded = 0, micros = 0, samples = 0;
    for (int64_t i = 0; i < steps; ++i) {
      // Spread over the epoch: buckets may come in runs.
      const int64_t step = i * plan->num_steps() / steps;
      const data::StepSplit cutting = data::split_step(*plan, step, split, length);
      for (size_t m = 0; m < cutting.num_micro_batches(); ++m) {
        double longest = 0;
        for (uint32_t r = cutting.micro_begin[m]; r < cutting.micro_begin[m + 1]; ++r) {
          const double one = length(plan->sample(cutting.entries[cutting.rows[r]]));
          real += one;
          longest = std::max(longest, one);
        }
        const double rows = cutting.micro_begin[m + 1] - cutting.micro_begin[m];
        padded += rows * longest;
        samples += rows;
        micros += 1;
      }
    }
    const auto n = static_cast<double>(steps);
    return PlanShape{padded > 0 ? 1 - real / padded : 0, micros / n, samples / n};
  } catch (const Error&) {
    return std::nullopt;  // the trial will say what is wrong with the setting
  }
}

bool same_samples(const JobSource& jobs, const task::Task& task, const Setting& a, const Setting& b) {
  const Planned plans[2] = {plan_job(jobs, task, a), plan_job(jobs, task, b)};
  std::vector<uint32_t> samples[2];
  bool few_dropped = true;
  for (int i = 0; i < 2; ++i) {
    const auto plan = plans[i].planner->epoch(0);
    samples[i] = plan->entries;
    std::sort(samples[i].begin(), samples[i].end());
    few_dropped = few_dropped && plans[i].job->train_ds().drop_last &&
                  static_cast<size_t>(plan->num_dropped) * 20 <= samples[i].size() &&
                  std::adjacent_find(samples[i].begin(), samples[i].end()) == samples[i].end();
  }
  if (samples[0] == samples[1]) return true;
  return few_dropped && std::ranges::equal(plans[0].planner->kept(), plans[1].planner->kept());
}

double samples_of_run(const train::Job& job, int64_t steps_per_epoch, double per_step) {
  double steps = job.trainer().max_steps > 0 ? static_cast<double>(job.trainer().max_steps) : 0;
  if (job.trainer().max_epochs > 0) {
    const auto by_epochs = static_cast<double>(job.trainer().max_epochs * steps_per_epoch);
    steps = steps > 0 ? std::min(steps, by_epochs) : by_epochs;
  }
  return per_step * (steps > 0 ? steps : static_cast<double>(steps_per_epoch));
}

}  // namespace redline::tune
