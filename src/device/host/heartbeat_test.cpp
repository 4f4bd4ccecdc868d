#include "device/host/heartbeat.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "device/surroundings.h"

namespace redline::device {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(Heartbeat, ASleepThatWasTooLongIsAStop) {
  struct SleepCase {
    int64_t slept_ms, core_wait_ms, stopped_ms;
  };
  for (const SleepCase& c : {SleepCase{20, 0, 0}, SleepCase{25, 0, 0}, SleepCase{120, 0, 110}, SleepCase{120, 98, 0},
                             SleepCase{120, 60, 50}, SleepCase{120, -5, 110}})
    EXPECT_EQ(Heartbeat::stopped_of_sleep(c.slept_ms * kMs, c.core_wait_ms * kMs), c.stopped_ms * kMs)
        << c.slept_ms << " " << c.core_wait_ms;
}

// A child that is stopped for as long as it runs says about that; one that is left alone says nothing.
int64_t stopped_ms_of_child(bool stop) {
  int fds[2];
  EXPECT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    int64_t stopped = 0;
    {
      const Heartbeat heartbeat;
      for (int i = 0; i < 60; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      std::this_thread::sleep_for(std::chrono::milliseconds(40));
      stopped = heartbeat.stopped_ns();
    }
    _exit(write(fds[1], &stopped, sizeof stopped) == sizeof stopped ? 0 : 1);
  }
  if (stop) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    kill(child, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    kill(child, SIGCONT);
  }
  int64_t stopped = -1;
  EXPECT_EQ(read(fds[0], &stopped, sizeof stopped), static_cast<ssize_t>(sizeof stopped));
  int status = 0;
  waitpid(child, &status, 0);
  close(fds[0]), close(fds[1]);
  return stopped / kMs;
}

TEST(Heartbeat, SeesAProcessThatWasStopped) {
  const int64_t seen = stopped_ms_of_child(true);
  EXPECT_GT(seen, 250);
  EXPECT_LT(seen, 600);  // a machine under test may be busy
  EXPECT_LT(stopped_ms_of_child(false), 100);
}

TEST(Clock, ACoreHasAFrequency) {
  const double first = measure_gigahertz();
  EXPECT_GT(first, 0.3);
  EXPECT_LT(first, 10);
}

}  // namespace
}  // namespace redline::device
