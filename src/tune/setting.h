// A point of the search: option values on top of the user's job. Small, ordered, comparable; "" (no values) is the
// reference.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/fields.h"

namespace redline::tune {

using Setting = std::map<std::string, std::string>;  // dotted path -> value as typed
inline constexpr const char* kPresetKey = "preset";  // not an option: one of the recipe's presets, as a starting point

std::string setting_text(const Setting& setting);                    // "a=1, b=2", or "reference"
std::vector<std::string> setting_overrides(const Setting& setting);  // "a=1", "b=2"
// `extra` wins where both name an option.
Setting combine(const Setting& base, const Setting& extra);
Setting without(const Setting& base, const Setting& removed);

// One switch to try: values that move together (workers x threads, micro-batch x accumulation) are one candidate.
struct Candidate {
  std::string name;  // for the log, e.g. "num_workers 0 -> 1"
  Setting values{};
  double predicted_gain = 0;
  double ceiling = 1e9;  // the most it can gain, from the doctor's ceilings
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
};

}  // namespace redline::tune
