// What the machine does beside the loop, window by window. Windows grow with the run (a quarter of a second at first, a
// five-hundredth of its time later, half a minute at most), so that a long run's record stays small and reading the
// kernel's counts costs nothing that matters.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "core/strings.h"
#include "device/surroundings.h"
#include "measure/surroundings.h"

namespace redline::train {

class SurroundingsWatch {
 public:
  // Before the first step of this process.
  void start() {
    reader_.watch_stops();
    reader_.watch_gpus();
    before_ = reader_.read();
    begin_ns_ = before_.at_ns;
    first_step_ = -1;
  }

  // What this kernel or container does not show, as a list in words; empty where all is to be seen.
  std::string unseen() const { return join(reader_.unseen(), "; "); }

  // Of a step whose processor time was taken, before after_step().
  void add(const measure::PhaseTimes& wall, const measure::PhaseTimes& cpu, int64_t step_ns) {
    sampled_ns_ += step_ns;
    for (size_t p = 0; p < measure::kNumPhases; ++p)
      if (p != static_cast<size_t>(measure::Phase::Other)) off_core_ns_[p] += std::max<int64_t>(0, wall[p] - cpu[p]);
  }

  // After each step, with its end on the clock; a window that is over.
  std::optional<measure::SurroundingsWindow> after_step(int64_t step, int64_t now_ns) {
    if (first_step_ < 0) first_step_ = step;
    const int64_t length = std::clamp<int64_t>((now_ns - begin_ns_) / 500, 250'000'000, 30'000'000'000);
    if (now_ns - before_.at_ns < length) return std::nullopt;
    const device::SurroundingsCounts after = reader_.read();
    auto window = measure::window_between(before_, after);
    if (window) {
      window->first_step = first_step_, window->last_step = step;
      for (size_t p = 0; p < measure::kNumPhases && sampled_ns_ > 0; ++p)
        if (off_core_ns_[p] > 0)
          window->off_core[p] = static_cast<double>(off_core_ns_[p]) / static_cast<double>(sampled_ns_);
    }
    off_core_ns_.fill(0);
    sampled_ns_ = 0;
    before_ = after;
    first_step_ = -1;
    return window;
  }

 private:
  device::SurroundingsReader reader_;
  device::SurroundingsCounts before_;
  int64_t begin_ns_ = 0, first_step_ = -1;
  measure::PhaseTimes off_core_ns_{};  // since the last window, of sampled steps
  int64_t sampled_ns_ = 0;
};

}  // namespace redline::train
