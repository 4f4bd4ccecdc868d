// Which rank the others wait for, and what it spends its time on. Fed with each rank's own time of steps (what it
// waited for others left out); says so once, when the same rank was clearly slower in two windows on end. No clock
// inside.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "measure/run_record.h"

namespace redline::train {

// Seconds of a rank's step, by what it did; the order is that of kOwnParts.
inline constexpr std::array<const char*, 7> kOwnParts{"wait",      "copy",     "forward", "backward",
                                                      "optimiser", "cadences", "other"};
struct OwnTime {
  std::array<double, kOwnParts.size()> parts{};
  double cpu = 0;  // processor time of the whole process
  double sum() const;
};

struct Straggler {
  int rank = 0;
  double own_seconds = 0, others_seconds = 0;  // of a step; the others': their median
  std::string part;                            // what is slower
  double part_seconds = 0, others_part_seconds = 0;
  bool starved = false;  // its work takes no more processor time than theirs: something else has its processor
  double gain() const { return own_seconds / others_seconds - 1.0; }
  std::string sentence() const;
  measure::FieldList fields(int64_t step) const;
};

class StragglerTable {
 public:
  explicit StragglerTable(int world) : sums_(static_cast<size_t>(world)), counts_(static_cast<size_t>(world), 0) {}
  void add(int rank, const OwnTime& own);
  // Once per step, after all ranks' times; `step` only counts.
  std::optional<Straggler> judge();

  static constexpr int kWindowSteps = 32, kLeastTimed = 4;
  static constexpr double kSlower = 1.2, kLeastSeconds = 1e-3;

 private:
  std::optional<Straggler> slowest() const;

  std::vector<OwnTime> sums_;
  std::vector<int> counts_;
  int steps_ = 0, suspect_ = -1, named_ = -1;
};

}  // namespace redline::train
