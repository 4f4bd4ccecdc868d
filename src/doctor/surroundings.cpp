#include "doctor/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace redline::doctor {

namespace {

// Below these a window counts as quiet: a shell, a timer, the kernel's own threads.
constexpr double kOthers = 0.1, kWaited = 0.05, kStolen = 0.05, kThrottled = 0.02, kMemoryPressure = 0.05;
constexpr double kSwappingFaults = 20;  // major faults a second; loading a program has some too
constexpr double kMostLost = 0.95;
constexpr size_t kFewestRows = 20;
constexpr double kWorthASentence = 0.1;  // of the time

double or_zero(const std::optional<double>& value) { return value.value_or(0); }

bool swapping(const std::optional<double>& pressure, double faults) {
  return or_zero(pressure) >= kMemoryPressure && faults >= kSwappingFaults;
}

}  // namespace

bool disturbed(const measure::SurroundingsWindow& w) {
  const bool contended = or_zero(w.others) >= kOthers && (!w.waited || *w.waited >= kWaited);
  return contended || or_zero(w.stolen) >= kStolen || or_zero(w.throttled) >= kThrottled ||
         swapping(w.memory_pressure, w.major_faults);
}

std::optional<Surroundings> summarise(std::span<const measure::SurroundingsWindow> windows) {
  Surroundings sum;
  for (const measure::SurroundingsWindow& w : windows) sum.seconds += w.seconds;
  if (!(sum.seconds > 0)) return std::nullopt;
  const auto add = [](std::optional<double>& to, const std::optional<double>& value, double share) {
    if (value) to = to.value_or(0) + share * *value;
  };
  for (const measure::SurroundingsWindow& w : windows) {
    const double share = w.seconds / sum.seconds;
    if (disturbed(w)) sum.disturbed += share;
    sum.cores = std::max(sum.cores, w.cores);
    sum.own += share * w.own;
    sum.major_faults += share * w.major_faults;
    add(sum.others, w.others, share);
    add(sum.stolen, w.stolen, share);
    add(sum.waited, w.waited, share);
    add(sum.throttled, w.throttled, share);
    add(sum.memory_pressure, w.memory_pressure, share);
    add(sum.disk_pressure, w.disk_pressure, share);
    add(sum.swapped, w.swapped, share);
  }
  return sum;
}

// A thread that has no core holds up those that wait for it at the end of an operator, so what any of them waited is
// lost to the step; of that, no more than others used.
double Surroundings::lost_to_others() const {
  const double taken = or_zero(others) + or_zero(stolen);
  if (or_zero(others) < kOthers && or_zero(stolen) < kStolen) return 0;
  return std::min(kMostLost, waited ? std::min(*waited, taken) + or_zero(stolen) : taken / std::max(1.0, cores));
}

double Surroundings::lost_to_itself() const {
  const double taken = or_zero(others) + or_zero(stolen);
  return std::clamp(or_zero(waited) - taken - or_zero(throttled), 0.0, kMostLost);
}

// Threads of a group are held back together, each counted for itself.
double Surroundings::lost_to_quota() const {
  return std::min(kMostLost, or_zero(throttled) / std::max(1.0, std::min(cores, std::max(1.0, own))));
}

double Surroundings::lost_to_swapping() const {
  return swapping(memory_pressure, major_faults) ? std::min(kMostLost, *memory_pressure) : 0;
}

std::vector<measure::SurroundingsWindow> surroundings_of(const measure::RunRecord& record) {
  std::vector<measure::SurroundingsWindow> windows;
  for (const measure::Event& event : record.events)
    if (const auto window = measure::surroundings_of(event)) windows.push_back(*window);
  return windows;
}

std::vector<measure::StepRow> undisturbed(std::span<const measure::StepRow> rows,
                                          std::span<const measure::SurroundingsWindow> windows) {
  std::vector<measure::SurroundingsWindow> busy;  // few of a long run's thousands
  std::ranges::copy_if(windows, std::back_inserter(busy), disturbed);
  std::vector<measure::StepRow> quiet;
  for (const measure::StepRow& row : rows)
    if (std::ranges::none_of(busy, [&](const measure::SurroundingsWindow& w) {
          return row.step >= w.first_step && row.step <= w.last_step;
        }))
      quiet.push_back(row);
  if (quiet.size() < kFewestRows) quiet.assign(rows.begin(), rows.end());
  return quiet;
}

std::string busy_sentence(const Surroundings& seen) {
  if (seen.disturbed < kWorthASentence) return {};
  std::string text = fmt::format("The machine was busy for {:.0f} % of this run", 100 * seen.disturbed);
  std::string why;
  const auto say = [&](const std::string& one) { why += (why.empty() ? ": " : ", ") + one; };
  if (or_zero(seen.others) >= kOthers / 2)
    say(fmt::format("other processes used {:.1f} of its {:.0f} cores", *seen.others, seen.cores));
  if (or_zero(seen.stolen) >= kStolen / 2) say(fmt::format("the hypervisor took {:.1f} cores", *seen.stolen));
  if (or_zero(seen.throttled) >= kThrottled / 2) say(fmt::format("a quota held back {:.1f} cores", *seen.throttled));
  if (seen.lost_to_swapping() > 0)
    say(fmt::format("it waited for memory in {:.0f} % of the time", 100 * *seen.memory_pressure));
  return text + why + ".";
}

}  // namespace redline::doctor
