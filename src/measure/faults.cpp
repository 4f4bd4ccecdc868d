// Delays live in arrays of atomics, so that a scope on any thread reads them without a lock; named failures are rare
// and take one.
#include "measure/faults.h"

#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::measure::faults {
namespace {

struct Delay {
  std::atomic<int64_t> ns{0};
  std::atomic<bool> spin{false};
};
std::array<Delay, kNumPhases> phase_delays;
std::array<Delay, kNumStages> stage_delays;

struct NamedFailures {
  std::mutex mutex;
  std::map<std::string, int64_t, std::less<>> left;  // occurrences until the failure
};
std::atomic<bool> names_armed{false};

constexpr std::string_view kDelayPrefix = "delay.";

void parse_environment(NamedFailures& failures) {
  const char* text = std::getenv("REDLINE_FAULTS");
  if (text == nullptr || *text == '\0') return;
  for (const std::string& part : split(text, ',')) {
    const auto at_sign = part.rfind('@');
    const auto count = at_sign == std::string::npos ? std::nullopt : parse_int(part.substr(at_sign + 1));
    if (!count || *count < 1 || at_sign == 0) {
      throw ConfigError("REDLINE_FAULTS expects name@n,name@n with n from 1, but '" + printable(part) +
                        "' is none; correct it or unset the variable.");
    }
    const std::string name = part.substr(0, at_sign);
    if (name.starts_with(kDelayPrefix)) {
      const auto phase = phase_from_name(std::string_view(name).substr(kDelayPrefix.size()));
      if (!phase) throw ConfigError("REDLINE_FAULTS names the delay '" + printable(name) + "', which is of no phase.");
      add_delay(*phase, 1e-3 * static_cast<double>(*count), DelayKind::Sleep);
      continue;
    }
    failures.left[name] = *count;
  }
  names_armed.store(true, std::memory_order_relaxed);
}

NamedFailures& named() {
  static NamedFailures failures;
  return failures;
}

// Before the first use of a name; a bad variable throws from there.
void read_environment_once() {
  static const bool done = [] {
    parse_environment(named());
    return true;
  }();
  (void)done;
}

void set_delay(Delay& delay, double seconds, DelayKind kind) {
  REDLINE_CHECK(seconds >= 0, "a delay can not be negative");
  delay.spin.store(kind == DelayKind::Spin, std::memory_order_relaxed);
  delay.ns.store(static_cast<int64_t>(seconds * 1e9), std::memory_order_relaxed);
  detail::armed.store(true, std::memory_order_relaxed);
}

void wait_out(const Delay& delay) {
  const int64_t ns = delay.ns.load(std::memory_order_relaxed);
  if (ns <= 0) return;
  if (delay.spin.load(std::memory_order_relaxed)) {
    const int64_t end = now_ns() + ns;
    while (now_ns() < end) {
    }
  } else {
    std::this_thread::sleep_for(std::chrono::nanoseconds(ns));
  }
}

}  // namespace

namespace detail {
std::atomic<bool> armed{false};
void hit(Phase phase) { wait_out(phase_delays[static_cast<size_t>(phase)]); }
void hit(Stage stage) { wait_out(stage_delays[static_cast<size_t>(stage)]); }
}  // namespace detail

void add_delay(Phase phase, double seconds, DelayKind kind) {
  set_delay(phase_delays[static_cast<size_t>(phase)], seconds, kind);
}
void add_delay(Stage stage, double seconds, DelayKind kind) {
  set_delay(stage_delays[static_cast<size_t>(stage)], seconds, kind);
}

void clear() {
  detail::armed.store(false, std::memory_order_relaxed);
  for (Delay& delay : phase_delays) delay.ns.store(0, std::memory_order_relaxed);
  for (Delay& delay : stage_delays) delay.ns.store(0, std::memory_order_relaxed);
  const std::lock_guard lock(named().mutex);
  named().left.clear();
  names_armed.store(false, std::memory_order_relaxed);
}

void fail_once(const std::string& name, int64_t occurrence) {
  REDLINE_CHECK(occurrence >= 1, "occurrences count from 1");
  const std::lock_guard lock(named().mutex);
  named().left[name] = occurrence;
  names_armed.store(true, std::memory_order_relaxed);
}

bool take(const char* name) {
  read_environment_once();
  if (!names_armed.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(named().mutex);
  const auto it = named().left.find(name);
  if (it == named().left.end() || --it->second > 0) return false;
  named().left.erase(it);
  return true;
}

}  // namespace redline::measure::faults
