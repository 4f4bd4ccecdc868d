#include "doctor/rules/shared_memory.h"

#include <gtest/gtest.h>

#include <vector>

namespace redline::doctor {
namespace {

struct RunBeside {
  std::vector<measure::StepRow> rows;
  std::vector<measure::SurroundingsWindow> windows;
};

// Windows of two steps, every other pair of them beside a neighbour, whose steps need `slowdown` times the processor.
RunBeside run_beside(double slowdown, double waited = 0.01, bool always = false) {
  RunBeside run;
  for (int i = 0; i < 40; ++i) {
    const bool busy = always || i / 2 % 2 == 1;
    measure::SurroundingsWindow w;
    w.first_step = 2 * i + 1, w.last_step = 2 * i + 2;
    w.seconds = busy ? 0.25 * slowdown : 0.25;
    w.cores = 2, w.own = 1.0 + 0.01 * (i % 5);
    w.others = busy ? 0.98 : 0.02, w.waited = waited, w.throttled = 0.0;
    run.windows.push_back(w);
    for (int64_t step = w.first_step; step <= w.last_step; ++step) {
      measure::StepRow row;
      row.step = step, row.samples = 8, row.items = 800;
      run.rows.push_back(row);
    }
  }
  return run;
}

TEST(SharedMemory, SlowerBesideANeighbourWithoutWaitingIsTheMemory) {
  const RunBeside run = run_beside(1.3);
  const SharedMemory found = fit_shared_memory(run.rows, run.windows);
  EXPECT_TRUE(found.known);
  EXPECT_NEAR(found.slowdown, 1.3, 0.02);
  EXPECT_NEAR(found.lost(), 0.13, 0.01);  // it was there for 57 % of the time
}

TEST(SharedMemory, NothingIsSaidWithoutAContrast) {
  for (const RunBeside& run :
       {run_beside(1.0), run_beside(1.3, /*waited=*/0.6), run_beside(1.3, 0.01, /*always=*/true)})
    EXPECT_EQ(fit_shared_memory(run.rows, run.windows).lost(), 0);
  EXPECT_EQ(fit_shared_memory({}, {}).lost(), 0);
}

}  // namespace
}  // namespace redline::doctor
