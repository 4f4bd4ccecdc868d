// A thread that sleeps a fiftieth of a second at a time and notices when it sleeps longer. What it overslept without
// waiting for a core is time in which nothing of this process could run: it was stopped (SIGSTOP, a freezer, a job
// limiter that stops and goes), or the whole machine was. No count of the kernel tells that.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace redline::device {

class Heartbeat {
 public:
  // Longer than its sleep by less than this is a timer's slack or a busy core's.
  static constexpr int64_t kBeatNs = 20'000'000, kSlackNs = 6'000'000;

  Heartbeat();
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // Since it was made; only grows. Of stops shorter than a beat it sees a part.
  int64_t stopped_ns() const { return stopped_ns_.load(std::memory_order_relaxed); }

  // Pure: of one sleep, what counts as stopped. A stop begins on average in the middle of a sleep, so half a beat of it
  // went unseen. `core_wait_ns`: what the sleeper waited for a core.
  static int64_t stopped_of_sleep(int64_t slept_ns, int64_t core_wait_ns);

 private:
  void beat();

  std::atomic<int64_t> stopped_ns_{0};
  std::mutex mutex_;
  std::condition_variable over_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace redline::device
