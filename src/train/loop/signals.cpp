#include "train/loop/signals.h"

namespace redline::train {

std::atomic<int> StopFlag::signal_{0};

namespace {

constexpr int kStopSignals[3] = {SIGINT, SIGTERM, SIGUSR1};

void on_stop_signal(int number) {
  StopFlag::request(number);
  // Async-signal-safe: the next SIGINT ends the process.
  if (number == SIGINT) std::signal(SIGINT, SIG_DFL);
}

}  // namespace

SignalScope::SignalScope() {
  StopFlag::clear();
  struct sigaction action = {};
  action.sa_handler = on_stop_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (int i = 0; i < 3; ++i) sigaction(kStopSignals[i], &action, &before_[i]);
}

SignalScope::~SignalScope() {
  for (int i = 0; i < 3; ++i) sigaction(kStopSignals[i], &before_[i], nullptr);
}

std::string signal_text(int signal) {
  switch (signal) {
    case SIGINT:
      return "SIGINT";
    case SIGTERM:
      return "SIGTERM";
    case SIGUSR1:
      return "SIGUSR1";
    default:
      return "signal " + std::to_string(signal);
  }
}

}  // namespace redline::train
