// What this process holds according to the kernel: resident memory for every step (cheap), proportional memory on
// request (slow).
#pragma once

#include <cstdint>

namespace redline::device {

int64_t process_rss_bytes();       // about 1 us: one pread of an open file
int64_t process_peak_rss_bytes();  // since the process started
int64_t process_pss_bytes();  // shared pages divided among their users; milliseconds; 0 when the kernel does not tell
int64_t system_available_bytes();  // now, cgroup limit included

}  // namespace redline::device
