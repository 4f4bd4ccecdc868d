#include "tune/search/companions.h"

#include <algorithm>
#include <cmath>

namespace redline::tune {

namespace {

int64_t number_in(const Setting& setting, const char* path, int64_t otherwise) {
  const auto found = setting.find(path);
  return found == setting.end() ? otherwise : std::stoll(found->second);
}

}  // namespace

StepBatch step_batch(const JobView& job, const Setting& setting) {
  return {number_in(setting, kBatchPath, job.batch_size), number_in(setting, kAccumulatePath, job.accumulate)};
}

Setting with_companions(const JobView& job, const Setting& setting) {
  const StepBatch then = step_batch(job, setting);
  const double steps = static_cast<double>(job.effective_batch()) / static_cast<double>(then.samples());
  const double batches = static_cast<double>(job.batch_size) / static_cast<double>(then.batch);
  Setting values = setting;
  // A count of the job, or of the setting where that has one, times `factor`.
  const auto scale = [&](const char* path, std::optional<int64_t> count, double factor) {
    if (setting.count(path) != 0) count = number_in(setting, path, 1);
    if (!count || *count <= 0 || factor == 1.0) return;
    values[path] = std::to_string(std::max<int64_t>(1, std::llround(static_cast<double>(*count) * factor)));
  };
  const auto positive = [](int64_t count) { return count > 0 ? std::optional(count) : std::nullopt; };
  scale(kValidationPath, job.val_check_batches, batches);
  scale("trainer.max_iters", positive(job.max_iters), batches);
  scale("trainer.limit_train_batches", job.limit_train_batches, batches);
  scale(kSavePath, job.save_every_steps, steps);
  scale("exp_manager.checkpoint_callback_params.every_n_micro_iterations", job.save_every_batches, batches);
  if (job.max_iters == 0) scale("trainer.max_steps", positive(job.max_steps), steps);
  scale("model.optim.sched.warmup_steps", job.warmup_steps, steps);
  scale("model.optim.sched.max_steps", job.schedule_steps, steps);
  scale("model.optim.sched.constant_steps", job.constant_steps, steps);
  if (steps != 1.0 && job.scale_lr == "none") {
    // Adam's step does not grow with the gradient, so its rate goes with the root (Malladi et al. 2022); SGD's with the
    // batch (Goyal et al. 2017).
    values["model.optim.scale_lr"] = job.optimizer == "sgd" ? "linear" : "sqrt";
    values["model.optim.base_batch_size"] = std::to_string(job.effective_batch());
  }
  return values;
}

std::vector<std::string> typed_companions(const JobView& job, const Setting& setting) {
  std::vector<std::string> typed;
  for (const auto& [path, value] : with_companions(job, setting))
    if (setting.count(path) == 0 && job.pinned.count(path) != 0) typed.push_back(path);
  return typed;
}

}  // namespace redline::tune
