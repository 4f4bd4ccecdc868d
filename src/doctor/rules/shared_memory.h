// What neighbours take of the memory's bandwidth and of shared caches, without taking a core: while they run, the same
// work needs more processor time, though no thread waits. It can only be seen where they come and go within a run.
// Pure.
#pragma once

#include <span>

#include "measure/run_record.h"
#include "measure/surroundings.h"

namespace redline::doctor {

struct SharedMemory {
  bool known = false;         // they came and went, and the difference is clear
  double slowdown = 1;        // processor time of the same work beside them, against without
  double beside_share = 0;    // of the time
  double slowdown_error = 0;  // standard error
  double lost() const { return lost_at(slowdown); }
  double surely_lost() const { return lost_at(slowdown - 1.96 * slowdown_error); }

 private:
  double lost_at(double slower) const { return known && slower > 1 ? beside_share * (1 - 1 / slower) : 0; }
};

SharedMemory fit_shared_memory(std::span<const measure::StepRow> rows,
                               std::span<const measure::SurroundingsWindow> windows);

}  // namespace redline::doctor
