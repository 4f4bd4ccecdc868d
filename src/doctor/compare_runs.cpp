#include "doctor/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "doctor/rules/guide_traps.h"

namespace redline::doctor {

namespace {

constexpr int64_t kWarmupSteps = 3;
constexpr size_t kMostBlocks = 30;

constexpr double kMostlyBusy = 0.5;  // of a run: then a loss may be the machine's

// Past the first steps, and outside what others disturbed where enough is left.
std::vector<measure::StepRow> steady_rows(const measure::RunRecord& run) {
  std::vector<measure::StepRow> rows = undisturbed(run.steps, surroundings_of(run));
  const auto warmup = static_cast<size_t>(kWarmupSteps);
  if (rows.size() > 2 * warmup) rows.erase(rows.begin(), rows.begin() + kWarmupSteps);
  return rows;
}

// "The machine was busy for 40 % of the second run: ..."; empty where both were quiet.
std::string busy_words(const std::optional<Surroundings>& seen, const char* which) {
  std::string text = seen ? busy_sentence(*seen) : "";
  if (const size_t at = text.find("this run"); at != std::string::npos) text.replace(at, 8, which);
  return text.empty() ? text : " " + text;
}

std::vector<double> seconds_per_sample_blocks(std::span<const measure::StepRow> rows) {
  const size_t blocks = std::min(rows.size(), kMostBlocks);
  std::vector<double> values;
  for (size_t b = 0; b < blocks; ++b) {
    double seconds = 0, samples = 0;
    for (size_t i = b * rows.size() / blocks; i < (b + 1) * rows.size() / blocks; ++i) {
      seconds += static_cast<double>(rows[i].wall_ns) * 1e-9;
      samples += rows[i].samples;
    }
    if (samples > 0) values.push_back(seconds / samples);
  }
  return values;
}

// The two runs were not interleaved, so blocks are resampled independently, not in pairs.
measure::RatioEstimate unpaired_ratio(const std::vector<double>& before, const std::vector<double>& after) {
  constexpr int kResamples = 2000;
  KeyedStream draw(1, before.size(), after.size(), 0x676174);
  const auto resampled_median = [&](const std::vector<double>& values) {
    std::vector<double> pick(values.size());
    for (double& value : pick)
      value = values[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(values.size()) - 1))];
    return measure::median(pick);
  };
  std::vector<double> ratios;
  for (int r = 0; r < kResamples; ++r) ratios.push_back(resampled_median(before) / resampled_median(after));
  return {measure::median(before) / measure::median(after),
          {measure::quantile(ratios, 0.025), measure::quantile(ratios, 0.975)},
          static_cast<int>(std::min(before.size(), after.size()))};
}

std::string config_value(const std::string& yaml, const std::string& key) {
  const size_t at = yaml.rfind("\n" + key + ":");
  const size_t begin = at == std::string::npos ? (yaml.starts_with(key + ":") ? 0 : std::string::npos) : at + 1;
  if (begin == std::string::npos) return {};
  const size_t end = yaml.find_first_of("#\n", begin);
  std::string value = yaml.substr(begin + key.size() + 1, end - begin - key.size() - 1);
  value.erase(0, value.find_first_not_of(' '));
  return value.erase(value.find_last_not_of(' ') + 1);
}

std::optional<Trap> trap_of(const Observation& before, const Observation& after) {
  const auto batch = [](const Observation& seen) {
    return seen.samples_per_step / std::max(1.0, seen.micro_batches_per_step);
  };
  return iterations_trap({batch(before), before.iterations_per_second, batch(after), after.iterations_per_second});
}

void check_comparable(const measure::RunRecord& before, const measure::RunRecord& after) {
  for (const auto* run : {&before, &after})
    if (run->steps.empty())
      throw DataError(fmt::format("{} has no finished steps: there is nothing to compare. Let it run for at least 20.",
                                  run->directory.string()));
  const std::string a = config_value(before.config_yaml, "task"), b = config_value(after.config_yaml, "task");
  if (a != b)
    throw DataError(fmt::format("These runs are not comparable: {} trains '{}', {} trains '{}'.",
                                before.directory.string(), a, after.directory.string(), b));
  const Observation x = observe(steady_rows(before), 0), y = observe(steady_rows(after), 0);
  if (std::abs(x.samples_per_step - y.samples_per_step) > 0.02 * std::max(x.samples_per_step, y.samples_per_step)) {
    const auto trap = trap_of(x, y);
    throw DataError(
        fmt::format("These runs are not comparable: a step holds {:.4g} samples in {} and {:.4g} in {}; give both the "
                    "same effective batch.{}",
                    x.samples_per_step, before.directory.string(), y.samples_per_step, after.directory.string(),
                    trap ? " " + trap->sentence : ""));
  }
}

std::vector<PartChange> grown_parts(std::span<const measure::StepRow> a, std::span<const measure::StepRow> b) {
  const size_t count = std::min(a.size(), b.size());
  return find_change(a.first(count), b.first(count)).moved;
}

}  // namespace

RunComparison compare_runs(const measure::RunRecord& before, const measure::RunRecord& after, double fail_on) {
  check_comparable(before, after);
  RunComparison comparison;
  comparison.fail_on = fail_on;
  const std::vector<measure::StepRow> first = steady_rows(before), second = steady_rows(after);
  comparison.before = observe(first, 0);
  comparison.after = observe(second, 0);
  comparison.before.surroundings = summarise(surroundings_of(before));
  comparison.after.surroundings = summarise(surroundings_of(after));
  const bool busy = comparison.after.surroundings && comparison.after.surroundings->disturbed > kMostlyBusy;
  comparison.speed = unpaired_ratio(seconds_per_sample_blocks(first), seconds_per_sample_blocks(second));
  comparison.detectable_loss = (comparison.speed.interval.high - comparison.speed.interval.low) / 2;
  const double limit = 1.0 - fail_on;
  const std::string measured = fmt::format(
      "{:.1f} -> {:.1f} samples/s ({:+.1f} %, 95 % interval {:+.1f} to {:+.1f} %)",
      comparison.before.samples_per_second, comparison.after.samples_per_second, 100 * (comparison.speed.ratio - 1),
      100 * (comparison.speed.interval.low - 1), 100 * (comparison.speed.interval.high - 1));
  if (comparison.speed.interval.high < limit && busy) {
    comparison.result = GateResult::TooNoisy;
    comparison.sentence = fmt::format("Slower, but the machine was too busy to blame the job: {}.", measured);
  } else if (comparison.speed.interval.high < limit) {
    comparison.result = GateResult::Regression;
    comparison.moved = grown_parts(first, second);
    const std::string where =
        comparison.moved.empty() ? "no single phase stands out" : "mostly in " + comparison.moved[0].part.name();
    comparison.sentence = fmt::format("Regression beyond {:.1f} %: {}; {}.", 100 * fail_on, measured, where);
  } else if (comparison.speed.interval.low >= limit) {
    comparison.result = GateResult::NoRegression;
    comparison.sentence = fmt::format("No regression beyond {:.1f} %: {}.", 100 * fail_on, measured);
  } else {
    comparison.result = GateResult::TooNoisy;
    comparison.sentence = fmt::format(
        "Too noisy to say: {}; losses below {:.1f} % cannot be told apart here. Record more steps, or on a quieter "
        "machine.",
        measured, 100 * comparison.detectable_loss);
  }
  comparison.sentence += busy_words(comparison.before.surroundings, "the first run") +
                         busy_words(comparison.after.surroundings, "the second run");
  if (const auto trap = trap_of(comparison.before, comparison.after)) comparison.sentence += " " + trap->sentence;
  return comparison;
}

}  // namespace redline::doctor
