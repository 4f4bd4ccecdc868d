#include "doctor/surroundings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "core/strings.h"
#include "measure/statistics.h"

namespace redline::doctor {

namespace {

// Below these a window counts as quiet: a shell, a timer, the kernel's own threads.
constexpr double kOthers = 0.1, kWaited = 0.05, kOthersInAWindow = 0.25, kStolen = 0.05, kThrottled = 0.02,
                 kMemoryPressure = 0.05;
constexpr double kSwappingFaults = 20;  // major faults a second; loading a program has some too
constexpr double kMostLost = 0.95;
constexpr double kStopped = 0.03;  // of the time: less is a machine that was paused once
constexpr size_t kFewestClocks = 8;
constexpr int64_t kWarmUpSteps = 3;
constexpr size_t kFewestRows = 20;
constexpr double kWorthASentence = 0.1;  // of the time

double or_zero(const std::optional<double>& value) { return value.value_or(0); }

bool swapping(const std::optional<double>& pressure, double faults) {
  return or_zero(pressure) >= kMemoryPressure && faults >= kSwappingFaults;
}

// ", most of it python3 (4711)"
std::string of_whom(const Surroundings& seen) {
  return seen.neighbour.empty() ? "" : ", most of it " + printable(seen.neighbour);
}

}  // namespace

bool disturbed(const measure::SurroundingsWindow& w) {
  const bool contended = or_zero(w.others) >= kOthersInAWindow && (!w.waited || *w.waited >= kWaited);
  return contended || or_zero(w.stolen) >= kStolen || or_zero(w.throttled) >= kThrottled ||
         swapping(w.memory_pressure, w.major_faults) || or_zero(w.stopped) >= kStopped;
}

std::optional<Surroundings> summarise(std::span<const measure::SurroundingsWindow> windows) {
  Surroundings sum;
  for (const measure::SurroundingsWindow& w : windows) sum.seconds += w.seconds;
  if (!(sum.seconds > 0)) return std::nullopt;
  const auto add = [](std::optional<double>& to, const std::optional<double>& value, double share) {
    if (value) to = to.value_or(0) + share * *value;
  };
  std::vector<double> clocks;
  std::map<std::string, double> named;
  for (const measure::SurroundingsWindow& w : windows) {
    const double share = w.seconds / sum.seconds;
    if (disturbed(w)) sum.disturbed += share;
    sum.cores = std::max(sum.cores, w.cores);
    sum.own += share * w.own;
    sum.major_faults += share * w.major_faults;
    sum.switches += share * w.switches;
    add(sum.others, w.others, share);
    add(sum.stolen, w.stolen, share);
    add(sum.waited, w.waited, share);
    add(sum.throttled, w.throttled, share);
    add(sum.memory_pressure, w.memory_pressure, share);
    add(sum.disk_pressure, w.disk_pressure, share);
    add(sum.swapped, w.swapped, share);
    add(sum.stopped, w.stopped, share);
    add(sum.reads, w.reads, share);
    add(sum.read_bytes, w.read_bytes, share);
    add(sum.disk_read_bytes, w.disk_read_bytes, share);
    add(sum.others_disk_bytes, w.others_disk_bytes, share);
    add(sum.gpu_others, w.gpu_others, share);
    for (size_t p = 0; p < measure::kNumPhases; ++p) add(sum.off_core[p], w.off_core[p], share);
    if (w.gigahertz) clocks.push_back(*w.gigahertz);
    if (!w.neighbour.empty()) named[w.neighbour] += w.seconds;
  }
  if (sum.others) sum.others = std::max(0.0, *sum.others);
  if (sum.others_disk_bytes) sum.others_disk_bytes = std::max(0.0, *sum.others_disk_bytes);
  if (!named.empty())
    sum.neighbour = std::ranges::max_element(named, {}, [](const auto& one) { return one.second; })->first;
  if (clocks.size() >= kFewestClocks) {
    sum.gigahertz = measure::median(clocks);
    sum.best_gigahertz = measure::quantile(clocks, 0.9);
  }
  return sum;
}

// Its work is the same with and without neighbours, so its speed goes with the cores it gets. Alone it would have what
// it had, and what its ready threads waited for as far as others were the ones who had it. A thread that a quota holds
// back is ready, too; the quota's verdict counts it. A core that the hypervisor took is not waited for in this kernel's
// eyes, and `others` are without it.
double Surroundings::lost_to_others() const {
  if (or_zero(others) < kOthers && or_zero(stolen) < kStolen) return 0;
  const double used = std::max(0.0, or_zero(others));
  const double wanted = waited ? std::max(0.0, *waited - or_zero(throttled)) : used;
  return lost_without(std::min(wanted, used) + or_zero(stolen));
}

double Surroundings::lost_to_itself() const {
  return std::clamp(or_zero(waited) - or_zero(others) - or_zero(throttled), 0.0, kMostLost);
}

// Threads of a group are held back together, each counted for itself.
double Surroundings::lost_to_quota() const { return or_zero(throttled) < kThrottled ? 0 : lost_without(*throttled); }

double Surroundings::lost_without(double more_cores) const {
  const double alone = std::min(std::max(cores, own), own + more_cores);
  return alone > 0 ? std::clamp(1 - own / alone, 0.0, kMostLost) : 0;
}

double Surroundings::lost_to_swapping() const {
  return swapping(memory_pressure, major_faults) ? std::min(kMostLost, *memory_pressure) : 0;
}

// The heartbeat's core is taken by the hypervisor as often as any; that time is counted as stolen.
double Surroundings::lost_to_stops() const {
  const double share = or_zero(stopped) - lost_to_quota() - or_zero(stolen) / std::max(1.0, cores);
  return share >= kStopped ? std::min(kMostLost, share) : 0;
}

std::optional<Surroundings> surroundings_summary(const measure::RunRecord& record) {
  std::vector<measure::SurroundingsWindow> windows = surroundings_of(record);
  std::vector<measure::SurroundingsWindow> warm;
  std::ranges::copy_if(windows, std::back_inserter(warm),
                       [](const measure::SurroundingsWindow& w) { return w.last_step > kWarmUpSteps; });
  auto seen = summarise(warm.empty() ? windows : warm);
  for (const measure::Event& event : record.events) {
    if (!seen || event.kind != measure::kUnseenEvent) continue;
    if (const measure::FieldValue* what = event.find("what"))
      if (const auto* words = std::get_if<std::string>(what)) seen->unseen = *words;
  }
  return seen;
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
    say(fmt::format("other processes used {:.1f} of its {:.0f} cores{}", *seen.others, seen.cores, of_whom(seen)));
  if (or_zero(seen.stolen) >= kStolen / 2) say(fmt::format("the hypervisor took {:.1f} cores", *seen.stolen));
  if (or_zero(seen.throttled) >= kThrottled / 2) say(fmt::format("a quota held back {:.1f} cores", *seen.throttled));
  if (seen.lost_to_stops() > 0) say(fmt::format("it was stopped for {:.0f} % of it", 100 * *seen.stopped));
  if (seen.lost_to_swapping() > 0)
    say(fmt::format("it waited for memory in {:.0f} % of the time", 100 * *seen.memory_pressure));
  return text + why + ".";
}

}  // namespace redline::doctor
