// What the doctor finds and the tuner races, under the tuner's own roof.
#pragma once

#include "doctor/job_view.h"
#include "doctor/setting.h"

namespace redline::tune {

using doctor::Candidate;
using doctor::combine;
using doctor::JobView;
using doctor::Setting;
using doctor::setting_overrides;
using doctor::setting_text;
using doctor::without;

inline constexpr const char* kPresetKey = "preset";  // not an option: one of the recipe's presets, as a starting point

}  // namespace redline::tune
