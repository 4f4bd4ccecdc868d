// What a compiled step costs, and what it brings at most, where neither was measured.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace redline::doctor {

inline constexpr double kCompileGain = 0.3;      // what the guides promise at their most
inline constexpr double kCompileSeconds = 60.0;  // what it takes for the tasks that come with redline

// Eager steps of so many seconds whose time a compilation must save to be earned back.
inline int64_t steps_to_earn_compilation(double step_seconds) {
  const double saved_a_step = std::max(1e-9, step_seconds) * (1.0 - 1.0 / (1.0 + kCompileGain));
  return static_cast<int64_t>(std::ceil(kCompileSeconds / saved_a_step));
}

}  // namespace redline::doctor
