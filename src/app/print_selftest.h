// The answers of the stopwatch's test for a person and for scripts.
#pragma once

#include <vector>

#include "app/command.h"
#include "doctor/selftest.h"

namespace redline::app {

void print_selftest(const doctor::SelftestRun& run, const Globals& globals);

}  // namespace redline::app
