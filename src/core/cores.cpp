#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <cstddef>

namespace redline {

int affinity_cpus() {
  // The mask of a machine with more than 1024 CPUs does not fit cpu_set_t, so grow until the kernel is content.
  for (int cpus = 1024; cpus <= (1 << 18); cpus *= 2) {
    cpu_set_t* mask = CPU_ALLOC(static_cast<size_t>(cpus));
    if (mask == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    CPU_ZERO_S(bytes, mask);
    const bool read = sched_getaffinity(0, bytes, mask) == 0;
    const int count = read ? CPU_COUNT_S(bytes, mask) : 0;
    CPU_FREE(mask);
    if (read) return std::max(count, 1);
  }
  return 1;
}

}  // namespace redline
