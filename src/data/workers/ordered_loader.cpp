#include "data/workers/ordered_loader.h"

#include "core/check.h"
#include "core/error.h"
#include "data/workers/collate.h"

namespace redline::data {

namespace {

constexpr int64_t kFastRows = 2048;    // of a stretch where rows are tiny: waking a worker then costs well under 1 %
constexpr int64_t kFastStretches = 3;  // in the window, so that neither side waits for the other

LoaderSettings complete(LoaderSettings settings, const PlanSettings& plan, const StretchRunner::Parts& parts) {
  settings.whole_batches = parts.batch_reader != nullptr;
  settings.prefetch_batches = std::max<int64_t>(1, settings.prefetch_batches);
  if (!settings.whole_batches) return settings;
  // Without workers too: nothing is read ahead then, but a stretch costs as much as a few rows.
  settings.stretch_rows = std::max(kFastRows, plan.batch_size * plan.groups_per_step);
  if (settings.num_workers == 0) return settings;
  const int64_t micro =
      settings.split.micro_batch_size > 0 ? settings.split.micro_batch_size : std::max<int64_t>(1, plan.batch_size);
  settings.prefetch_batches = std::max(settings.prefetch_batches, kFastStretches * (settings.stretch_rows / micro + 1));
  return settings;
}

}  // namespace

OrderedLoader::OrderedLoader(LoaderSettings settings, std::shared_ptr<const Planner> planner,
                             StretchRunner::Parts parts)
    : settings_(complete(std::move(settings), planner->settings(), parts)),
      planner_(std::move(planner)),
      runner_(std::make_shared<StretchRunner>(std::move(parts))),
      clock_(settings_.num_workers + 1),
      bad_log_(settings_.bad_samples_file, planner_->filtered().kept, settings_.bad_limits, settings_.split.rank) {
  REDLINE_CHECK(settings_.split.mixes_groups == (runner_->parts().group_transform != nullptr),
                "a step is split by whether its groups are mixed");
  const PlanSettings& plan = planner_->settings();
  const Source* source = &runner_->parts().chain->source();
  maker_ = std::make_shared<StretchMaker>(
      planner_, [source, cut = plan.cut_length](int64_t sample) { return std::min(source->length(sample), cut); },
      settings_);
  queue_ = std::make_unique<WorkerQueue>(settings_, maker_, runner_, clock_);
  enter_epoch(0);
  if (plan_->num_steps() == 0) {
    throw DataError("drop_last leaves no batch: " + std::to_string(planner_->filtered().kept) +
                    " samples do not fill one batch of " + std::to_string(plan.batch_size) +
                    ". Lower batch_size, or set drop_last: false.");
  }
}

OrderedLoader::~OrderedLoader() { queue_->stop_workers(); }

void OrderedLoader::enter_epoch(int64_t epoch) {
  plan_ = maker_->plan(epoch);
  steps_done_ = 0;
  inside_step_ = false;
  maker_->set_last_epoch(settings_.continuous && settings_.persistent_workers ? INT64_MAX : epoch);
}

void OrderedLoader::report_bad(const Micro& micro) {
  const int64_t rows = static_cast<int64_t>(micro.batch.sample_ids.size());
  if (micro.bad.empty()) {
    bad_log_.good_rows(rows);
    return;
  }
  for (const auto& events : micro.bad) bad_log_.row(events, plan_->epoch, micro.batch.step);
}

std::optional<Batch> OrderedLoader::next() {
  if (steps_done_ == plan_->num_steps()) {
    if (!settings_.persistent_workers) queue_->stop_workers();
    enter_epoch(plan_->epoch + 1);
    if (!settings_.persistent_workers)
      queue_->restart(plan_->epoch, 0);
    else if (!settings_.continuous)
      queue_->wake();  // a restart would make again what a worker began as soon as it was allowed to
    return std::nullopt;
  }
  Micro* micro = queue_->front();
  REDLINE_CHECK(micro != nullptr && micro->batch.step == steps_done_, "the queue delivers the plan in order");
  report_bad(*micro);
  if (micro->error != nullptr) std::rethrow_exception(micro->error);  // front() finds it again until a seek
  std::optional<Batch> batch(std::move(micro->batch));
  runner_->released(num_bytes(*batch));
  inside_step_ = batch->micro_batch + 1 < batch->num_micro_batches;
  if (!inside_step_) ++steps_done_;
  queue_->pop();
  return batch;
}

void OrderedLoader::seek(int64_t epoch, int64_t step) {
  if (epoch == plan_->epoch && step == steps_done_ && !inside_step_) return;  // keeps what was made ahead
  if (epoch < 0 || step < 0) {
    throw DataError("The data position is negative: epoch " + std::to_string(epoch) + ", step " + std::to_string(step) +
                    ".");
  }
  const int64_t steps = maker_->plan(epoch)->num_steps();
  if (step > steps) {
    throw DataError("The data position is step " + std::to_string(step) + " of epoch " + std::to_string(epoch) +
                    ", but an epoch has " + std::to_string(steps) +
                    " steps: was the checkpoint made with other data or another batch_size?");
  }
  enter_epoch(epoch);  // before the workers may ask for stretches of it
  queue_->restart(epoch, step);
  steps_done_ = step;
}

Position OrderedLoader::position() const {
  return {planner_->settings().seed, plan_->epoch, steps_done_, planner_->hash()};
}

std::string OrderedLoader::sample_name(int64_t id) const {
  const Source& source = runner_->parts().chain->source();
  return id >= 0 && id < source.size() ? source.name(id) : std::string();
}

LoaderStats OrderedLoader::stats() const {
  LoaderStats stats;
  stats.stages = clock_.totals();
  stats.bad_samples = bad_log_.num_bad();
  if (const FeatureCache* cache = runner_->parts().chain->cache()) {
    stats.cache_hits = cache->hits();
    stats.cache_misses = cache->misses();
  }
  stats.queue_batches = queue_->num_ready();
  stats.queue_bytes = runner_->buffered_bytes();
  return stats;
}

}  // namespace redline::data
