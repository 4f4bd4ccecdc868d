// What a run's surroundings did to it: which of its steps were disturbed, by whom, and what it would gain alone. Pure.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "measure/run_record.h"
#include "measure/surroundings.h"

namespace redline::doctor {

struct Surroundings {
  double seconds = 0;
  double disturbed = 0;  // share of the time in windows that were disturbed
  // Means over the time, where seen; as in a window.
  double cores = 0, own = 0;
  std::optional<double> others, stolen, waited, throttled, memory_pressure, disk_pressure, swapped;
  std::optional<double> stopped, reads, read_bytes, disk_read_bytes, others_disk_bytes, gpu_others;
  double major_faults = 0, switches = 0;            // a second
  std::optional<double> gigahertz, best_gigahertz;  // the median; what a tenth of the windows reached
  // Of the steps' time: the training thread was in this phase and on no core; none where that was not recorded.
  std::array<std::optional<double>, measure::kNumPhases> off_core;
  std::string neighbour;  // who was the largest other process in most of the windows
  std::string unseen;     // what the kernel did not show, in words

  // Shares of the wall time that were lost, at most 0.95.
  double lost_to_others() const;    // its threads waited while others used its cores
  double lost_to_itself() const;    // they waited for each other
  double lost_to_quota() const;     // a cgroup held them back
  double lost_to_swapping() const;  // pages came back from the disk
  double lost_to_stops() const;     // nothing of it could run, and no quota says why

 private:
  double lost_without(double more_cores) const;  // that it could have had
};

bool disturbed(const measure::SurroundingsWindow& window);
// None without windows.
std::optional<Surroundings> summarise(std::span<const measure::SurroundingsWindow> windows);
std::vector<measure::SurroundingsWindow> surroundings_of(const measure::RunRecord& record);
// Both, with what could not be seen, less the windows in which the run warmed up.
std::optional<Surroundings> surroundings_summary(const measure::RunRecord& record);

// Rows outside disturbed windows, as long as enough of them are left to judge by; else all.
std::vector<measure::StepRow> undisturbed(std::span<const measure::StepRow> rows,
                                          std::span<const measure::SurroundingsWindow> windows);

// "The machine was busy for 40 % of this run: other processes used 0.9 of its 2 cores." Empty where it was quiet.
std::string busy_sentence(const Surroundings& seen);

}  // namespace redline::doctor
