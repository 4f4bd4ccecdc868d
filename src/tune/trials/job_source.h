// A job as doctor and tuner start others like it, its values as their rules need them, and its plans.
#pragma once

#include <functional>

#include "doctor/plan_model.h"
#include "train/job.h"
#include "tune/setting.h"

namespace redline::tune {

using doctor::PlanShape;

inline constexpr const char* kThreadsPath = "trainer.intra_op_threads";
inline constexpr const char* kPrecisionPath = "trainer.precision";
inline constexpr const char* kCompilePath = "trainer.compile";

// The user's source and what belongs to every job that is started from it.
struct JobSource {
  const task::Registry& registry;
  config::RequestSource source;
  MachineFacts machine;
  Setting base{};                                     // under every setting: what makes the job fit its memory
  std::function<Setting(const Setting&)> complete{};  // with_companions; none: settings are taken as they are

  bool named = false;  // settings are what the user named to compare, and stand above what was typed for both sides

  // The user's job with `setting` on top (below what was typed, unless named).
  config::RequestSource with(const Setting& setting) const;
};

// Whole numbers of rows that count steps or batches; a share of an epoch needs no scaling.
std::vector<JobView::Counted> counted_options(const train::Job& job);

JobView view_job(const train::Job& job, task::Task& task);

// Padding and cuts of the first steps of a setting's plan; nothing is read. nullopt when the setting is refused.
std::optional<PlanShape> plan_shape(const JobSource& jobs, const task::Task& task, const Setting& setting);

// Whether an epoch of both settings holds the same samples, whatever their order. With drop_last a few are left out of
// each epoch anyway; then at most a twentieth may be, none twice.
bool same_samples(const JobSource& jobs, const task::Task& task, const Setting& a, const Setting& b);

// Samples of the whole run: max_steps or max_epochs; one epoch when the job names no end.
double samples_of_run(const train::Job& job, int64_t steps_per_epoch, double samples_per_step);

}  // namespace redline::tune
