#include "train/loop/log_window.h"

namespace redline::train {

void LogWindow::add(const StepVerdict& step) {
  ++timed_steps_;
  timed_samples_ += step.samples;
  ++sums_.steps;
  sums_.samples += step.samples;
  sums_.items += step.items;
  sums_.padded_items += step.padded_items;
  if (!step.committed || !(step.weight > 0)) return;
  sums_.weight += step.weight;
  sums_.loss += step.loss() * step.weight;
  for (const auto& [name, sum] : step.metric_sums) sums_.metrics[name] += sum / step.weight * step.weight;
}

void LogWindow::add_phases(const measure::PhaseTimes& phases) {
  for (size_t i = 0; i < phases.size(); ++i) phases_[i] += phases[i];
}

std::map<std::string, double> LogWindow::values(const Now& now) const {
  std::map<std::string, double> values;
  const double seconds = static_cast<double>(now.now_ns - begin_ns_) * 1e-9;
  if (sums_.weight > 0) {
    values["loss"] = sums_.loss / sums_.weight;
    for (const auto& [name, sum] : sums_.metrics) values[name] = sum / sums_.weight;
  }
  if (sums_.padded_items > 0)
    values["padding_share"] = 1.0 - static_cast<double>(sums_.items) / static_cast<double>(sums_.padded_items);
  if (timed_steps_ == 0 || !(seconds > 0)) return values;
  values["samples_per_second"] = static_cast<double>(timed_samples_) / seconds;
  values["steps_per_second"] = static_cast<double>(timed_steps_) / seconds;
  values["step_seconds"] = seconds / static_cast<double>(timed_steps_);
  const auto wait = static_cast<size_t>(measure::Phase::Wait);
  values["data_wait_share"] = static_cast<double>(phases_[wait] + now.running[wait]) * 1e-9 / seconds;
  values["cores_used"] = static_cast<double>(now.process_cpu_ns - begin_cpu_ns_) * 1e-9 / seconds;
  double all = 0;
  for (size_t i = 0; i < begin_stages_.size(); ++i)
    all += static_cast<double>(now.loader.stages.ns[i] - begin_stages_[i]);
  if (all > 0) {
    for (size_t i = 0; i < begin_stages_.size(); ++i) {
      const std::string name = std::string(measure::stage_name(static_cast<measure::Stage>(i))) + "_share";
      values[name] = static_cast<double>(now.loader.stages.ns[i] - begin_stages_[i]) / all;
    }
  }
  return values;
}

void LogWindow::reset(const Now& now) {
  sums_ = LogSums();
  start_clock(now);
}

void LogWindow::start_clock(const Now& now) {
  timed_steps_ = timed_samples_ = 0;
  begin_ns_ = now.now_ns;
  begin_cpu_ns_ = now.process_cpu_ns;
  begin_stages_ = now.loader.stages.ns;
  // What the running step has waited so far belongs to the window that just ended.
  for (size_t i = 0; i < phases_.size(); ++i) phases_[i] = -now.running[i];
}

}  // namespace redline::train
