#include "device/host/heartbeat.h"

#include <pthread.h>

#include <chrono>

#include "core/strings.h"
#include "core/time.h"
#include "device/host/proc_text.h"

namespace redline::device {

namespace {

// Of the calling thread; 0 where the kernel does not count it.
int64_t own_core_wait_ns() {
  const std::vector<std::string> words = split(trim(proc_text("/proc/thread-self/schedstat")), ' ');
  return words.size() < 2 ? 0 : parse_int(words[1]).value_or(0);
}

}  // namespace

int64_t Heartbeat::stopped_of_sleep(int64_t slept_ns, int64_t core_wait_ns) {
  const int64_t over = slept_ns - kBeatNs - std::max<int64_t>(0, core_wait_ns);
  return over > kSlackNs ? over + kBeatNs / 2 : 0;
}

Heartbeat::Heartbeat() : thread_([this] { beat(); }) {}

Heartbeat::~Heartbeat() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  over_.notify_all();
  thread_.join();
}

void Heartbeat::beat() {
  pthread_setname_np(pthread_self(), "heartbeat");
  int64_t waited_ns = own_core_wait_ns();
  std::unique_lock lock(mutex_);
  while (!ends_) {
    const int64_t begin_ns = now_ns();
    if (over_.wait_for(lock, std::chrono::nanoseconds(kBeatNs), [this] { return ends_; })) return;
    const int64_t slept_ns = now_ns() - begin_ns;
    if (slept_ns <= kBeatNs + kSlackNs) continue;
    const int64_t now_waited_ns = own_core_wait_ns();
    stopped_ns_.fetch_add(stopped_of_sleep(slept_ns, now_waited_ns - waited_ns), std::memory_order_relaxed);
    waited_ns = now_waited_ns;
  }
}

}  // namespace redline::device
