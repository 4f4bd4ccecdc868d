#include "core/time.h"

#include <cstdio>

namespace redline {

namespace {

int64_t clock_ns(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

int64_t thread_cpu_ns() { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }
int64_t process_cpu_ns() { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

std::string utc_timestamp() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  tm parts{};
  gmtime_r(&t.tv_sec, &parts);
  char seconds[32], whole[48];
  strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(whole, sizeof whole, "%s.%03dZ", seconds, static_cast<int>(t.tv_nsec / 1'000'000));
  return whole;
}

std::string local_date_for_path() {
  timespec t{};
  clock_gettime(CLOCK_REALTIME, &t);
  tm parts{};
  localtime_r(&t.tv_sec, &parts);
  char text[32];
  strftime(text, sizeof text, "%Y-%m-%d_%H-%M-%S", &parts);
  return text;
}

}  // namespace redline
