// How much of the cores' time others took, from the kernel's own counts: a thread that never leaves its core does not
// notice that its partner waits for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace redline::device {

// Ticks that the given cores were not idle, and those of them that went to processes of low priority and to the
// hypervisor, from the text of /proc/stat; empty when a core is missing there.
struct CoreTicks {
  uint64_t busy = 0, nice = 0, stolen = 0;
};
std::optional<CoreTicks> core_ticks(std::string_view proc_stat, const std::vector<int>& cores);

std::vector<int> allowed_core_numbers();

// From its making on, over the cores this process may run on.
class BusyCores {
 public:
  BusyCores();
  // How many of these cores others left to this process, e.g. 1.6 of 2; all of them when the kernel does not say. Ticks
  // are coarse: below a second it is rough.
  double cores_left() const;

 private:
  std::vector<int> cores_;
  std::optional<CoreTicks> ticks_;
  int64_t wall_ns_, own_ns_;
};

}  // namespace redline::device
