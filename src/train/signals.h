// Requests to stop from outside: SIGTERM, SIGUSR1, SIGUSR2, SIGHUP (unless ignored, as under nohup), SIGXCPU and the
// first SIGINT ask for a checkpoint and a stop; the second SIGINT takes its default action (the process ends at once;
// checkpoints survive that by design).
#pragma once

#include <atomic>
#include <csignal>
#include <cstddef>
#include <string>

namespace redline::train {

// Any loop of the process may ask; set by a handler, or by a program that embeds redline.
class StopFlag {
 public:
  static bool requested() { return signal_.load(std::memory_order_relaxed) != 0; }
  static int signal() { return signal_.load(std::memory_order_relaxed); }
  static void request(int signal) { signal_.store(signal, std::memory_order_relaxed); }
  static void clear() { signal_.store(0, std::memory_order_relaxed); }

 private:
  static std::atomic<int> signal_;
};

// Handlers for the scope's life; the previous ones come back. An inner scope changes nothing, so that a request made
// under the outer one is not forgotten. On one thread.
class SignalScope {
 public:
  static constexpr size_t kSignals = 6;
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

 private:
  struct sigaction before_[kSignals];
};

// Throws PreemptedError when a stop was asked for: while a run starts, before it has written anything.
void stop_before_start();

std::string signal_text(int signal);  // "SIGTERM"

}  // namespace redline::train
