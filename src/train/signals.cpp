#include "train/signals.h"

#include <iterator>

#include "core/error.h"

namespace redline::train {

std::atomic<int> StopFlag::signal_{0};

namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGXCPU};
static_assert(std::size(kStopSignals) == SignalScope::kSignals);

int scopes_alive = 0;

void on_stop_signal(int number) {
  StopFlag::request(number);
  // Async-signal-safe: the next SIGINT ends the process.
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

SignalScope::SignalScope() {
  if (scopes_alive++ > 0) return;
  StopFlag::clear();
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals; ++i) {
    sigaction(kStopSignals[i], nullptr, &before_[i]);
    // nohup: the user asked that a closed terminal changes nothing.
    if (kStopSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN) continue;
    sigaction(kStopSignals[i], &action, nullptr);
  }
}

SignalScope::~SignalScope() {
  if (--scopes_alive > 0) return;
  for (size_t i = 0; i < kSignals; ++i) sigaction(kStopSignals[i], &before_[i], nullptr);
}

void stop_before_start() {
  if (!StopFlag::requested()) return;
  throw PreemptedError("Stopped by " + signal_text(StopFlag::signal()) +
                       " before the first step; nothing was written. Run the same command again to start.");
}

std::string signal_text(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGHUP:
      return "SIGHUP";
    case SIGXCPU:
      return "SIGXCPU";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace redline::train
