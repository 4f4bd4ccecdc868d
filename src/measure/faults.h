// Fault injection inside phase and stage scopes: known delays (for the doctor's self-test) and named failures (for the
// guards' and the durability tests). Off: one relaxed load per scope.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "measure/phases.h"

namespace redline::measure::faults {

enum class DelayKind { Sleep, Spin };

namespace detail {
extern std::atomic<bool> armed;
void hit(Phase phase);
void hit(Stage stage);
}  // namespace detail

inline void at(Phase phase) {
  if (detail::armed.load(std::memory_order_relaxed)) detail::hit(phase);
}
inline void at(Stage stage) {
  if (detail::armed.load(std::memory_order_relaxed)) detail::hit(stage);
}

// Adds `seconds` to every scope of that phase or stage until cleared.
void add_delay(Phase phase, double seconds, DelayKind kind);
void add_delay(Stage stage, double seconds, DelayKind kind);
void clear();

// Named points for tests, e.g. fail_once("checkpoint.sync", 3): the third take("checkpoint.sync") returns true.
// Also read from the environment at start: REDLINE_FAULTS="name@n,name@n"; delay.PHASE@n: n milliseconds in every scope
// of that phase.
void fail_once(const std::string& name, int64_t occurrence);
bool take(const char* name);

}  // namespace redline::measure::faults
