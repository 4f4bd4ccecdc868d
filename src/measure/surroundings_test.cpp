#include "measure/surroundings.h"

#include <gtest/gtest.h>

namespace redline::measure {
namespace {

device::SurroundingsCounts counts(double seconds) {
  device::SurroundingsCounts c;
  c.at_ns = static_cast<int64_t>(seconds * 1e9);
  c.own_cpu_ns = static_cast<int64_t>(seconds * 1.5e9);
  c.cores = 2;
  c.busy_seconds = 1.9 * seconds;
  c.stolen_seconds = 0.1 * seconds;
  c.run_wait_ns = static_cast<int64_t>(seconds * 0.25e9);
  c.memory_pressure_ns = static_cast<int64_t>(seconds * 3e9);
  c.major_faults = static_cast<int64_t>(seconds * 40);
  c.stopped_ns = static_cast<int64_t>(seconds * 0.3e9);
  c.read_calls = static_cast<int64_t>(seconds * 200), c.read_bytes = static_cast<int64_t>(seconds * 5e6);
  c.others_disk_bytes = static_cast<int64_t>(seconds * -3e6);  // what it wrote is not on the disk yet
  c.gigahertz = 3.5;
  c.gpu_others = 1;
  c.yielding_cores = 0.1, c.neighbour = "python3 (7)", c.neighbour_cores = 0.2;
  return c;
}

TEST(Surroundings, ADifferenceIsAWindow) {
  const auto window = window_between(counts(10), counts(12));
  ASSERT_TRUE(window);
  EXPECT_DOUBLE_EQ(window->seconds, 2);
  EXPECT_DOUBLE_EQ(window->own, 1.5);
  EXPECT_NEAR(window->others.value(), 0.2, 1e-9);  // 1.9 busy: 1.5 own, 0.1 stolen, 0.1 that give way
  EXPECT_NEAR(window->stopped.value(), 0.3, 1e-9);
  EXPECT_NEAR(window->reads.value(), 200, 1e-9);
  EXPECT_NEAR(window->read_bytes.value(), 5e6, 1e-3);
  EXPECT_NEAR(window->others_disk_bytes.value(), -3e6, 1e-3);
  EXPECT_DOUBLE_EQ(window->gigahertz.value(), 3.5);
  EXPECT_EQ(window->neighbour, "python3 (7)");
  EXPECT_NEAR(window->stolen.value(), 0.1, 1e-9);
  EXPECT_NEAR(window->waited.value(), 0.25, 1e-9);
  EXPECT_DOUBLE_EQ(window->memory_pressure.value(), 1);  // a share, whatever the kernel counts
  EXPECT_DOUBLE_EQ(window->major_faults, 40);
  EXPECT_FALSE(window->throttled);
  EXPECT_FALSE(window->swapped);
  EXPECT_FALSE(window_between(counts(10), counts(10)));
  EXPECT_FALSE(window_between(counts(10), counts(9)));  // a clock that jumped
}

TEST(Surroundings, CountsThatFallAreNothing) {
  device::SurroundingsCounts after = counts(12);
  after.run_wait_ns = 5;  // the thread that had waited is gone
  EXPECT_DOUBLE_EQ(window_between(counts(10), after)->waited.value(), 0);
}

TEST(Surroundings, AnEventGivesItBack) {
  SurroundingsWindow window = window_between(counts(10), counts(12)).value();
  window.first_step = 7, window.last_step = 19;
  window.off_core[static_cast<size_t>(Phase::Checkpoint)] = 0.21;
  Event event{"2026-11-18T00:00:00Z", kSurroundingsEvent, surroundings_fields(window)};
  const auto back = surroundings_of(event);
  ASSERT_TRUE(back);
  EXPECT_EQ(back->first_step, 7);
  EXPECT_EQ(back->last_step, 19);
  EXPECT_NEAR(back->others.value(), 0.2, 1e-4);
  EXPECT_NEAR(back->stopped.value(), 0.3, 1e-4);
  EXPECT_EQ(back->gpu_others, 1);
  EXPECT_NEAR(back->others_disk_bytes.value(), -3e6, 1);
  EXPECT_EQ(back->neighbour, "python3 (7)");
  EXPECT_NEAR(back->off_core[static_cast<size_t>(Phase::Checkpoint)].value(), 0.21, 1e-4);
  EXPECT_FALSE(back->off_core[static_cast<size_t>(Phase::Forward)]);
  EXPECT_FALSE(back->throttled);
  event.fields.erase(event.fields.begin());
  EXPECT_FALSE(surroundings_of(event));  // not whole
  event.kind = "checkpoint.saved";
  EXPECT_FALSE(surroundings_of(event));
  const Event lying{"", kSurroundingsEvent, {{"first_step", int64_t{9}}, {"last_step", int64_t{3}}}};
  EXPECT_FALSE(surroundings_of(lying));
}

}  // namespace
}  // namespace redline::measure
