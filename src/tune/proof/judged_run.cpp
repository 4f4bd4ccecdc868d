#include "tune/proof/judged_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "data/loader.h"

namespace redline::tune {

namespace {

constexpr double kHoldOut = 0.1;                            // of the training samples
constexpr int64_t kFewestHeldOut = 32, kMostHeldOut = 256;  // samples that are looked at
constexpr double kHeldOutOfRun = 1.0 / 16;                  // of the samples of a judged run, looked at seven times

// The same files as the training data are not held out.
bool validates_on_training_data(const train::Job& job) {
  const data::DatasetConfig &train = job.train_ds(), &validation = job.validation_ds();
  const auto same = [](const config::Node& a, const config::Node& b) { return !a.is_null() && a == b; };
  return same(train.path, validation.path) || same(train.manifest_filepath, validation.manifest_filepath);
}

}  // namespace

int64_t least_judged_steps(double factor) {
  return std::max(kLeastJudgedSteps,
                  static_cast<int64_t>(std::ceil(static_cast<double>(kLeastUpdates) * factor - 1e-9)));
}

JudgedRun plan_judged_run(const train::Job& job, task::Task& task, const JudgedRunFacts& facts) {
  JudgedRun run;
  run.whole_samples = facts.samples_of_run;
  const auto whole_steps = static_cast<int64_t>(std::llround(facts.samples_of_run / facts.samples_per_step));
  run.steps = whole_steps > 0 ? std::min(facts.steps, whole_steps) : facts.steps;
  run.samples = static_cast<double>(run.steps) * facts.samples_per_step;
  if (whole_steps > 0 && run.steps == whole_steps) run.whole_samples = run.samples;
  run.metric = job.monitor_metric();
  run.precision = job.precision();

  const bool same_files = validates_on_training_data(job);
  std::unique_ptr<data::Loader> held_out;
  if (!same_files) held_out = job.build_loader(task, train::Job::Part::Validation, {});
  if (!held_out) {
    run.hold_out = kHoldOut;
    held_out = job.build_split_loaders(task, kHoldOut).held_out;
  }
  const int64_t wanted = std::clamp(static_cast<int64_t>(run.samples * kHeldOutOfRun), kFewestHeldOut, kMostHeldOut);
  held_out->seek(0, 0);
  const int64_t batches = held_out->steps_per_epoch();
  while (run.held_out_samples < wanted && run.held_out_batches < batches) {
    const auto batch = held_out->next();
    if (!batch) break;
    run.held_out_samples += static_cast<int64_t>(batch->sample_ids.size());
    if (batch->micro_batch + 1 == batch->num_micro_batches) ++run.held_out_batches;
  }
  const std::string count = fmt::format("{} samples", run.held_out_samples);
  if (run.hold_out == 0)
    run.held_out_words = count + " of the validation data";
  else
    run.held_out_words =
        fmt::format("{} split off the training data, since {}", count,
                    same_files ? "the validation data are the same files" : "the job has no validation data");
  run.schedule_words =
      run.share() < 1
          ? fmt::format("a run of {} samples, {} of the job's own, its schedules shortened alike for both sides",
                        format_count(run.samples), fmt::format("{:.3g} %", 100 * run.share()))
          : fmt::format("the job's whole run of {} samples", format_count(run.samples));
  return run;
}

std::vector<std::string> shortened(const train::Job& job, const JudgedRun& run, double samples_per_step) {
  const auto steps = std::max<int64_t>(1, std::llround(run.samples / samples_per_step));
  const double share = run.share();
  std::vector<std::string> words;
  if (job.trainer().max_iters)
    words.push_back(fmt::format("trainer.max_iters={}", steps * job.trainer().accumulate_grad_batches));
  else
    words.push_back(fmt::format("trainer.max_steps={}", steps));
  if (share >= 1) return words;
  for (const JobView::Counted& option : counted_options(job)) {
    // What says how much data an epoch has is no place in time.
    if (option.cadence || option.path == "trainer.max_steps" || option.path == "trainer.max_iters" ||
        option.path == "trainer.limit_train_batches")
      continue;
    const double scaled = static_cast<double>(option.value) * share;
    words.push_back(fmt::format("{}={}", option.path, std::max<int64_t>(1, std::llround(scaled))));
  }
  const auto& sched = job.optim().sched;
  if (!sched) return words;
  // Its warm-up in epochs would be longer than the run.
  if (sched->warmup_epochs && !sched->warmup_steps)
    words.push_back(fmt::format(
        "model.optim.sched.warmup_ratio={}",
        format_double(job.trainer().max_epochs > 0 ? std::min(1.0, static_cast<double>(*sched->warmup_epochs) /
                                                                       static_cast<double>(job.trainer().max_epochs))
                                                   : 0.1)));
  // Noam's rate at a step falls with the root of how late it comes; at the same place of a shorter run it is the same.
  if (train::parse_schedule_kind(sched->name) == train::ScheduleKind::Noam)
    words.push_back(fmt::format("model.optim.lr={}", format_double(job.optim().lr * std::sqrt(share))));
  return words;
}

}  // namespace redline::tune
