// The clock used everywhere: monotonic nanoseconds. Decision logic takes times as arguments and never calls this.
#pragma once

#include <time.h>
#include <cstdint>
#include <string>

namespace redline {

inline int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}
inline double seconds_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

// CPU time of the calling thread and of the process, in nanoseconds.
int64_t thread_cpu_ns();
int64_t process_cpu_ns();

// Wall-clock time as 2026-11-15T20:01:02.345Z (for records) and as 2026-11-15_20-01-02 (for directory names).
std::string utc_timestamp();
std::string local_date_for_path();

}  // namespace redline
