// A run as `redline watch` shows it: a few lines for a terminal of any width, or one line for a pipe. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "doctor/observation.h"
#include "doctor/verdict.h"

namespace redline::report {

struct WatchedRun {
  std::string name, state, ended;  // "running", "stopped", "finished"; why it ended
  int64_t step = 0, max_steps = -1;
  double seconds_since_written = 0;
  std::vector<double> speeds;  // samples a second, oldest first
  std::optional<double> loss, validation_loss;
  std::optional<double> gpu_utilisation, gpu_bytes;
  doctor::Observation seen;  // of its last steps
  std::optional<doctor::Diagnosis> diagnosis;

  std::optional<double> seconds_left() const;  // while it runs towards a number of steps
};

// As high as the last values: "▁▃▇" or, without such letters, ".-#". The largest is the highest.
std::string sparkline(const std::vector<double>& values, size_t width, bool letters);

// No line is longer than `width` columns (at least 20).
std::vector<std::string> watch_lines(const WatchedRun& run, int width, bool letters);
std::string watch_line(const WatchedRun& run);

}  // namespace redline::report
