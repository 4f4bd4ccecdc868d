// The self-test's answers for a person and for scripts.
#pragma once

#include <vector>

#include "app/command.h"
#include "doctor/selftest.h"

namespace redline::app {

struct SelftestRun {
  std::vector<doctor::Answer> answers;
  double step_seconds = 0;  // of the job without a fault
  double seconds = 0;       // the whole test took
};
void print_selftest(const SelftestRun& run, const Globals& globals);

}  // namespace redline::app
