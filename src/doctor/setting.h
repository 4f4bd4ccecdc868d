// A point of the search: option values on top of the user's job, and a switch with what it is expected to gain. Small,
// ordered, comparable; "" (no values) is the reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/fields.h"
#include "measure/statistics.h"

namespace redline::doctor {

using Setting = std::map<std::string, std::string>;  // dotted path -> value as typed

std::string setting_text(const Setting& setting);                    // "a=1, b=2", or "reference"
std::vector<std::string> setting_overrides(const Setting& setting);  // "a=1", "b=2"
// `extra` wins where both name an option.
Setting combine(const Setting& base, const Setting& extra);
Setting without(const Setting& base, const Setting& removed);

// How far predictions are off where nothing was observed that says it (standard deviation, log scale): what is
// predicted to change much is missed by more. A prior, from the ledgers in bench/results.
double usual_deviation(double predicted_log);
inline constexpr double kUnforeseen = 0.05;  // the same of what no rule foresees

// What a switch works on: two that work on the same may help or spoil each other.
enum class WorksOn { Compute, Loader, Other };

// One switch to try: values that move together (workers x threads, micro-batch x accumulation) are one candidate.
struct Candidate {
  std::string name;  // for the log: the field, from what, to what
  Setting values{};
  double predicted_gain = 0;  // in speed: 0.25 = +25 %; negative = slower
  double ceiling = 1e9;       // the most it can gain
  config::Effect effect = config::Effect::Nothing;
  std::string group{};                // candidates of one group exclude each other (values of one option)
  std::string field{}, from{}, to{};  // for the ledger
  std::string not_tried{};            // why this one is not run: no consent, not measurable here; empty = run it
  bool over_budget = false;           // not_tried only for lack of budget: a longer one would try it
  bool not_measurable = false;
  bool ledger_only = false;  // measured for the ledger, never part of the best (presets)
  bool unpredicted = false;  // no rule foresees its gain
  bool shapes_plan = false;  // predicted together with the others that do (PlanModel)
  bool late = false;         // expected to lose: only with budget left over
  // What the user must allow before it is tried: rounding needs no word, another precision, order or training does.
  config::Effect consent = config::Effect::Nothing;
  std::string reason{};  // what its prediction rests on, for a person
  WorksOn works_on = WorksOn::Other;
  // Standard deviation of the prediction on the log scale; 0: usual_deviation. What was observed, where it was.
  double deviation = 0;
  double predicted_log() const;                  // of the gain, no further down than a tenth of the speed
  double prediction_error() const;               // deviation, or the usual one
  measure::Interval predicted_interval() const;  // of the gain, 95 %, below the ceiling
};

}  // namespace redline::doctor
