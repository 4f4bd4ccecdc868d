#include "measure/surroundings.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "core/time.h"

namespace redline::measure {

namespace {

struct KnownField {
  const char* name;
  double SurroundingsWindow::*member;
};
constexpr double kWorthAName = 0.05;  // cores

constexpr KnownField kKnown[] = {{"seconds", &SurroundingsWindow::seconds},
                                 {"cores", &SurroundingsWindow::cores},
                                 {"own", &SurroundingsWindow::own},
                                 {"major_faults", &SurroundingsWindow::major_faults},
                                 {"switches", &SurroundingsWindow::switches}};
struct SeenField {
  const char* name;
  std::optional<double> SurroundingsWindow::*member;
};
constexpr SeenField kSeen[] = {{"others", &SurroundingsWindow::others},
                               {"yielding", &SurroundingsWindow::yielding},
                               {"stolen", &SurroundingsWindow::stolen},
                               {"waited", &SurroundingsWindow::waited},
                               {"throttled", &SurroundingsWindow::throttled},
                               {"memory_pressure", &SurroundingsWindow::memory_pressure},
                               {"disk_pressure", &SurroundingsWindow::disk_pressure},
                               {"swapped", &SurroundingsWindow::swapped},
                               {"stopped", &SurroundingsWindow::stopped},
                               {"reads", &SurroundingsWindow::reads},
                               {"read_bytes", &SurroundingsWindow::read_bytes},
                               {"disk_read_bytes", &SurroundingsWindow::disk_read_bytes},
                               {"others_disk_bytes", &SurroundingsWindow::others_disk_bytes},
                               {"gpu_others", &SurroundingsWindow::gpu_others},
                               {"gigahertz", &SurroundingsWindow::gigahertz}};

std::string off_core_field(size_t phase) { return "off_core." + std::string(phase_name(static_cast<Phase>(phase))); }

// A count may fall: a thread that ended took its wait with it, a group was left.
template <class T>
std::optional<double> grown(const std::optional<T>& before, const std::optional<T>& after, double scale) {
  if (!before || !after) return std::nullopt;
  return std::max(0.0, static_cast<double>(*after - *before) * scale);
}

std::optional<double> number(const Event& event, std::string_view name, double least = 0) {
  const FieldValue* value = event.find(name);
  if (value == nullptr) return std::nullopt;
  double found = 0;
  if (const auto* real = std::get_if<double>(value))
    found = *real;
  else if (const auto* whole = std::get_if<int64_t>(value))
    found = static_cast<double>(*whole);
  else
    return std::nullopt;
  if (!std::isfinite(found) || found < least) return std::nullopt;
  return found;
}

}  // namespace

std::optional<SurroundingsWindow> window_between(const device::SurroundingsCounts& before,
                                                 const device::SurroundingsCounts& after) {
  SurroundingsWindow window;
  window.seconds = seconds_between(before.at_ns, after.at_ns);
  if (!(window.seconds > 0)) return std::nullopt;
  const double a_second = 1 / window.seconds, of_ns = 1e-9 * a_second;
  window.cores = after.cores;
  window.own = static_cast<double>(after.own_cpu_ns - before.own_cpu_ns) * of_ns;
  window.stolen = grown(before.stolen_seconds, after.stolen_seconds, a_second);
  if (const auto busy = grown(before.busy_seconds, after.busy_seconds, a_second))
    window.others = *busy - window.own - window.stolen.value_or(0) - after.yielding_cores.value_or(0);
  window.yielding = after.yielding_cores;
  if (after.neighbour_cores >= kWorthAName) window.neighbour = after.neighbour;
  window.waited = grown(before.run_wait_ns, after.run_wait_ns, of_ns);
  window.throttled = grown(before.throttled_ns, after.throttled_ns, of_ns);
  const auto share = [&](const std::optional<int64_t>& a, const std::optional<int64_t>& b) {
    auto found = grown(a, b, of_ns);
    if (found) *found = std::min(1.0, *found);
    return found;
  };
  window.memory_pressure = share(before.memory_pressure_ns, after.memory_pressure_ns);
  window.disk_pressure = share(before.io_pressure_ns, after.io_pressure_ns);
  window.stopped = share(before.stopped_ns, after.stopped_ns);
  window.reads = grown(before.read_calls, after.read_calls, a_second);
  window.read_bytes = grown(before.read_bytes, after.read_bytes, a_second);
  window.disk_read_bytes = grown(before.disk_read_bytes, after.disk_read_bytes, a_second);
  if (before.others_disk_bytes && after.others_disk_bytes)  // own writes count when made, on the disk they come later
    window.others_disk_bytes = static_cast<double>(*after.others_disk_bytes - *before.others_disk_bytes) * a_second;
  if (after.gigahertz > 0) window.gigahertz = after.gigahertz;
  if (after.gpu_others) window.gpu_others = *after.gpu_others;
  window.swapped = grown(before.swapped_pages, after.swapped_pages, a_second);
  window.major_faults = static_cast<double>(after.major_faults - before.major_faults) * a_second;
  window.switches = static_cast<double>(after.involuntary_switches - before.involuntary_switches) * a_second;
  return window;
}

FieldList surroundings_fields(const SurroundingsWindow& window) {
  FieldList fields{{"first_step", window.first_step}, {"last_step", window.last_step}};
  const auto rounded = [](double value) { return std::round(1e4 * value) / 1e4; };
  for (const KnownField& one : kKnown) fields.emplace_back(one.name, rounded(window.*one.member));
  for (const SeenField& one : kSeen)
    if (window.*one.member) fields.emplace_back(one.name, rounded(*(window.*one.member)));
  for (size_t p = 0; p < kNumPhases; ++p)
    if (window.off_core[p]) fields.emplace_back(off_core_field(p), rounded(*window.off_core[p]));
  if (!window.neighbour.empty()) fields.emplace_back("neighbour", window.neighbour);
  return fields;
}

std::optional<SurroundingsWindow> surroundings_of(const Event& event) {
  if (event.kind != kSurroundingsEvent) return std::nullopt;
  SurroundingsWindow window;
  const auto first = number(event, "first_step"), last = number(event, "last_step");
  if (!first || !last || *last < *first || *last > 1e15) return std::nullopt;
  window.first_step = static_cast<int64_t>(*first);
  window.last_step = static_cast<int64_t>(*last);
  for (const KnownField& one : kKnown) {
    const auto value = number(event, one.name);
    if (!value) return std::nullopt;
    window.*one.member = *value;
  }
  for (const SeenField& one : kSeen) {
    const bool signed_too =
        one.member == &SurroundingsWindow::others || one.member == &SurroundingsWindow::others_disk_bytes;
    window.*one.member = number(event, one.name, signed_too ? -1e15 : 0);
  }
  for (size_t p = 0; p < kNumPhases; ++p) window.off_core[p] = number(event, off_core_field(p));
  if (const FieldValue* name = event.find("neighbour"))
    if (const auto* text = std::get_if<std::string>(name)) window.neighbour = *text;
  return window;
}

}  // namespace redline::measure
