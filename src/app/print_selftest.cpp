#include "app/print_selftest.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/json_text.h"
#include "core/strings.h"

namespace redline::app {

namespace {

using nlohmann::json;

std::vector<std::string> names_of(const std::vector<doctor::Part>& parts) {
  std::vector<std::string> names;
  for (const doctor::Part& part : parts) names.push_back(part.name());
  return names;
}

json answer_json(const doctor::Answer& answer) {
  return {{"injected", names_of(answer.injection.parts)},
          {"share", answer.injection.share},
          {"kind", answer.injection.kind == measure::faults::DelayKind::Sleep ? "sleep" : "spin"},
          {"named", names_of(answer.named)},
          {"predicted_gain", answer.predicted_gain},
          {"measured_gain", answer.measured_gain},
          {"right", answer.right()}};
}

void print_matrix(const doctor::SelftestResult& result) {
  fmt::print("  injected       named first\n");
  for (const auto& [injected, said] : result.matrix) {
    fmt::print("  {:<14}", injected);
    for (const auto& [name, count] : said) fmt::print(" {} x{}", name, count);
    fmt::print("\n");
  }
}

}  // namespace

void print_selftest(const doctor::SelftestRun& run, const Globals& globals) {
  const std::vector<doctor::Answer>& answers = run.answers;
  const doctor::SelftestResult result = doctor::score_selftest(answers);
  if (globals.json) {
    json list = json::array();
    for (const doctor::Answer& answer : answers) list.push_back(answer_json(answer));
    fmt::print("{}\n", json_text(json{{"schema_version", 1},
                                      {"tests", "stopwatch"},
                                      {"accuracy", result.accuracy},
                                      {"injections", result.injections},
                                      {"controls", result.controls},
                                      {"false_alarm_rate", result.false_alarm_rate},
                                      {"median_gain_error", result.median_gain_error},
                                      {"step_seconds", run.step_seconds},
                                      {"seconds", run.seconds},
                                      {"matrix", result.matrix},
                                      {"answers", list}},
                                 1));
    return;
  }
  fmt::print(
      "A test of the stopwatch, not of a diagnosis: {} of {} injected delays named right ({:.1f} %), {} false alarms "
      "in {} controls, median error of the predicted gain "
      "{:.1f} percentage points (steps of {}, {} in all).\n\n",
      result.right, result.injections, 100 * result.accuracy, result.false_alarms, result.controls,
      100 * result.median_gain_error, format_seconds(run.step_seconds), format_seconds(run.seconds));
  print_matrix(result);
  bool wrong = false;
  for (const doctor::Answer& answer : answers) {
    if (answer.right()) continue;
    if (!wrong) fmt::print("\nWrong:\n");
    wrong = true;
    fmt::print("  {}: named {}\n", answer.injection.text(), answer.named_text());
  }
}

}  // namespace redline::app
