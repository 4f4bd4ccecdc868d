#include "tune/search/companions.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"

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

namespace {

// How many of the reference's steps and batches one of the setting's stands for.
struct Growth {
  double step = 1, batch = 1;
  double of(config::Counts counts) const { return counts == config::Counts::Steps ? step : batch; }
};

Growth growth_of(const JobView& job, const Setting& setting) {
  const StepBatch then = step_batch(job, setting);
  return {static_cast<double>(then.samples()) / static_cast<double>(job.effective_batch()),
          static_cast<double>(then.batch) / static_cast<double>(job.batch_size)};
}

// A count of the reference in the setting's own steps or batches.
int64_t rounded(double count, double growth) { return std::max<int64_t>(1, std::llround(count / growth)); }

// A whole number of larger steps may miss what a count meant by this share.
constexpr double kMostRounding = 0.1;

}  // namespace

Setting with_companions(const JobView& job, const Setting& setting) {
  const Growth growth = growth_of(job, setting);
  Setting values = setting;
  for (const JobView::Counted& option : job.counted) {
    const double by = growth.of(option.counts);
    if (by == 1.0) continue;
    values[option.path] =
        std::to_string(rounded(static_cast<double>(number_in(setting, option.path.c_str(), option.value)), by));
  }
  if (growth.step == 1.0) return values;
  // Adam's step does not grow with the gradient, so its rate goes with the root (Malladi et al. 2022); SGD's with the
  // batch (Goyal et al. 2017).
  const bool linear = job.optimizer == "sgd";
  if (job.scale_lr == "none") {
    values["model.optim.scale_lr"] = linear ? "linear" : "sqrt";
    values["model.optim.base_batch_size"] = std::to_string(job.effective_batch());
  }
  const double rate = linear || job.scale_lr == "linear" ? growth.step : std::sqrt(growth.step);
  if (job.min_lr > 0) values["model.optim.sched.min_lr"] = format_double(job.min_lr * rate);
  // An average over the same samples.
  if (job.ema_decay > 0) values["exp_manager.ema.decay"] = format_double(std::pow(job.ema_decay, growth.step));
  return values;
}

std::vector<std::string> stuck_companions(const JobView& job, const Setting& setting) {
  const Growth growth = growth_of(job, setting);
  std::vector<std::string> stuck;
  if (growth.step != 1.0) stuck = job.bound_to_batch;
  for (const JobView::Counted& option : job.counted) {
    const double exact = static_cast<double>(option.value) / growth.of(option.counts);
    if (!option.cadence && std::abs(static_cast<double>(rounded(exact, 1)) / exact - 1) > kMostRounding)
      stuck.push_back(option.path);
  }
  return stuck;
}

std::vector<std::string> typed_companions(const JobView& job, const Setting& setting) {
  std::vector<std::string> typed;
  for (const auto& [path, value] : with_companions(job, setting))
    if (setting.count(path) == 0 && job.pinned.count(path) != 0) typed.push_back(path);
  return typed;
}

}  // namespace redline::tune
