// How fast this machine really is, through the same LibTorch kernels that training uses: the ceilings later results are
// compared with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/machine_facts.h"

namespace redline::device {

struct RateOptions {
  double seconds_per_probe = 0.25;  // fp16 may run at 1 GFLOP/s: sizes grow only while a run stays well inside this
  int threads = 0;                  // 0 = the cores this process may use
};

struct RateReport {
  std::vector<std::string> notes;  // kernels that LibTorch lacks here
  double cpu_share =
      1;  // of the time on these cores, how much redline had or could have had; low = the machine was busy
  std::string measured_at;  // UTC
  std::string problem;      // why the rates are no more than lower limits, as part of a sentence; empty = they are good
};
// Below this share the rates are lower limits, and comparing precisions would compare accidents.
inline constexpr double kQuietCpuShare = 0.8;

// Fills the rates of `facts` (not the disk's); a kernel LibTorch lacks leaves 0 and a note. Changes the thread count
// for the duration. What is busy or implausible (device/profile.h) is named as the report's problem. The probes take
// turns, so that what else runs on the machine disturbs them alike.
RateReport measure_rates(MachineFacts& facts, const RateOptions& options = {});

// Repeats `run` (which does `work` units) for about `seconds`, at least three times, after one warm-up; returns units/s
// of its fastest run.
double best_rate(const std::function<void()>& run, double work, double seconds);

}  // namespace redline::device
