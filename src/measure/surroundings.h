// A stretch of a run and what the machine did meanwhile: kept as an event of the run record.
#pragma once

#include <array>
#include <optional>

#include "device/surroundings.h"
#include "measure/phases.h"
#include "measure/run_record.h"

namespace redline::measure {

struct SurroundingsWindow {
  int64_t first_step = 0, last_step = 0;  // that ended in it
  double seconds = 0;
  double cores = 0, own = 0;  // that the process may use, and that it used
  // Cores' worth, or shares of the time; none: not to be seen here.
  // Cores that other processes used, but for those that give way. A difference of coarse counts: of a single window
  // off by a tenth either way, so also below zero; cut there, a mean of many would be too high.
  std::optional<double> others;
  std::optional<double> yielding;         // cores that those used which run only where nobody else wants to
  std::optional<double> stolen;           // cores that the hypervisor took
  std::optional<double> waited;           // cores' worth of own threads that were ready and had none
  std::optional<double> throttled;        // cores' worth that a quota held back
  std::optional<double> memory_pressure;  // share of the time in which something stalled for memory
  std::optional<double> disk_pressure;    // the same for the disk
  std::optional<double> swapped;          // pages a second
  std::optional<double> stopped;          // share of the time in which nothing of the process could run
  std::optional<double> reads, read_bytes, disk_read_bytes;  // own, a second; the last: that the disk had to bring
  std::optional<double> others_disk_bytes;                   // a second; as `others`, also below zero
  std::optional<double> gigahertz;                           // at its end
  std::optional<double> gpu_others;                          // processes that compute on its GPUs, at its end
  double major_faults = 0, switches = 0;                     // a second; switches: involuntary ones
  // Share of the steps' time in which the training thread was in this phase and on no core, of sampled steps: it waited
  // for a core, a disk, another thread. Of Other nothing is known.
  std::array<std::optional<double>, kNumPhases> off_core;
  std::string neighbour;  // the largest of the others by name; may be empty
};

// Ticks of the kernel are coarse: below 0.1 s it tells little. None where no time has passed.
std::optional<SurroundingsWindow> window_between(const device::SurroundingsCounts& before,
                                                 const device::SurroundingsCounts& after);

inline constexpr const char* kSurroundingsEvent = "surroundings";
inline constexpr const char* kUnseenEvent = "surroundings.unseen";  // `what` the kernel did not show, once a process
FieldList surroundings_fields(const SurroundingsWindow& window);
std::optional<SurroundingsWindow> surroundings_of(const Event& event);  // none: another event, or not whole

}  // namespace redline::measure
