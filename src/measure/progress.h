// The progress line: one line redrawn in place on a terminal (at most ten times a second), plain lines otherwise. What
// it says is a pure function; drawing only decides when.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace redline::measure {

struct ProgressState {
  std::string label = "train";
  int64_t done = 0, total = 0;  // steps; total 0 = unknown
  std::optional<double> seconds_left;
  std::optional<double> samples_per_second, steps_per_second;  // optimiser steps
  std::optional<double> loss;
  std::optional<double> data_wait_share;  // 0..1
  std::optional<uint64_t> process_bytes;  // resident, tensors and everything else
};

// At most `width` columns (0 = as long as it gets); what matters least is left out first. With `bar` a bar is drawn
// where there is room.
std::string format_progress(const ProgressState& state, int width, bool bar);

struct ProgressOptions {
  int fd = 2;
  std::optional<bool> terminal;    // default: isatty(fd) and TERM is not dumb
  double redraw_seconds = 0.1;     // on a terminal
  double plain_line_seconds = 10;  // elsewhere
};

// One at a time per process: while it lives, log lines clear it and draw it again. update() and finish() from one
// thread.
class ProgressLine {
 public:
  explicit ProgressLine(const ProgressOptions& options = {});
  ~ProgressLine();  // as finish(), without the last state
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Draws if it is time to; `now_ns` is the monotonic clock. Returns whether it drew.
  bool update(const ProgressState& state, int64_t now_ns);
  // Draws the state in any case and ends the line.
  void finish(const ProgressState& state);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::measure
