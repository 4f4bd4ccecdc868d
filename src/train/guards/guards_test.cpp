// NaN and memory failures injected into real steps: found on the same step, named rightly, and nothing lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/error.h"
#include "device/memory.h"
#include "measure/faults.h"
#include "train/guards/replay_copy.h"
#include "train/loop/trainer.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

using testing::bit_equal;
using testing::difference;
using ::testing::HasSubstr;
using testing::Loop;

constexpr int kSteps = 30;

const std::map<std::string, torch::Tensor>& clean_weights() {
  static const auto weights = [] {
    Loop loop;
    loop.trainer->run_steps(kSteps);
    return loop.weights();
  }();
  return weights;
}

struct Injection {
  const char* point;
  const char* tensor;  // part of the name that must be given
  const char* event;
};

class InjectedNan : public ::testing::TestWithParam<Injection> {};

// 20 injections of each kind, at different steps: the event names step and tensor, the run ends as if nothing had
// happened.
TEST_P(InjectedNan, IsFoundOnTheSameStepAndNothingIsLost) {
  const Injection& kind = GetParam();
  int found = 0;
  for (int step = 1; step <= 20; ++step) {
    Loop loop;
    measure::faults::fail_once(kind.point, step);
    loop.trainer->run_steps(kSteps);
    ASSERT_EQ(loop.seen.count(kind.event), 1) << kind.point << " at " << step;
    const auto& events = loop.seen.events;
    const auto event =
        std::find_if(events.begin(), events.end(), [&](const measure::Event& e) { return e.kind == kind.event; });
    EXPECT_EQ(std::get<int64_t>(*event->find("step")), step);
    EXPECT_THAT(std::get<std::string>(*event->find("tensor")), HasSubstr(kind.tensor));
    EXPECT_TRUE(bit_equal(loop.weights(), clean_weights())) << kind.point << " at " << step;
    ++found;
  }
  EXPECT_EQ(found, 20);
}

INSTANTIATE_TEST_SUITE_P(EveryKind, InjectedNan,
                         ::testing::Values(Injection{"nan.input", "batch tensor x", "guard.non_finite"},
                                           Injection{"nan.gradient", "gradient of first.", "guard.non_finite"},
                                           Injection{"nan.loss", "loss", "guard.non_finite"},
                                           Injection{"nan.scale", "loss scale", "guard.non_finite"},
                                           Injection{"nan.optimizer", "optimiser state exp_avg.first.",
                                                     "guard.damaged"}));

// The same for an activation that breaks under autocast, at 20 steps: the weights are those of a run that made exactly
// that step in fp32.
TEST(Guards, AnActivationIsNamedWhicheverStepItBreaks) {
  const std::vector<std::string> mixed = {"task=fragile", "trainer.precision=bf16-mixed",
                                          "trainer.guards.clean_steps=1"};
  for (int64_t step = 0; step < 20; ++step) {
    testing::fragile() = {};
    testing::fragile().mixed_nan_steps = {step};
    Loop loop(mixed);
    loop.trainer->run_steps(22);
    ASSERT_EQ(loop.seen.count("guard.non_finite"), 1) << step;
    EXPECT_THAT(loop.seen.text("guard.non_finite", "tensor"), HasSubstr("output of aten::div")) << step;
    EXPECT_THAT(loop.seen.text("guard.non_finite", "samples"), ::testing::Not(HasSubstr(","))) << step;
    EXPECT_TRUE(loop.seen.rows[static_cast<size_t>(step)].flags & measure::kStepRetriedPrecision) << step;
    testing::fragile() = {};
    Loop fast(mixed), safe({"task=fragile"});
    fast.trainer->run_steps(step);
    safe.trainer->load(fast.trainer->state());
    safe.trainer->run_steps(1);
    fast.trainer->load(safe.trainer->state());
    fast.trainer->run_steps(21 - step);
    EXPECT_TRUE(bit_equal(loop.weights(), fast.weights())) << step;
  }
}

TEST(Guards, AnActivationThatBreaksInMixedPrecisionIsRerunSafer) {
  testing::fragile() = {};
  testing::fragile().mixed_nan_steps = {4, 9, 13};
  const std::vector<std::string> mixed = {"task=fragile", "trainer.precision=bf16-mixed",
                                          "trainer.guards.clean_steps=2", "trainer.guards.give_up_after=4"};
  Loop loop(mixed);
  loop.trainer->run_steps(20);
  EXPECT_EQ(loop.seen.count("guard.non_finite"), 3);
  EXPECT_EQ(loop.seen.count("guard.precision_return"), 3);
  const auto& events = loop.seen.events;
  const auto first =
      std::find_if(events.begin(), events.end(), [](const measure::Event& e) { return e.kind == "guard.non_finite"; });
  EXPECT_EQ(std::get<int64_t>(*first->find("step")), 5);
  EXPECT_THAT(std::get<std::string>(*first->find("tensor")), HasSubstr("output of aten::div"));
  EXPECT_EQ(std::get<std::string>(*first->find("precision")), "bf16-mixed");
  EXPECT_EQ(std::get<std::string>(*first->find("action")), "32-true");
  // One sample of the step is named, not all eight.
  EXPECT_THAT(std::get<std::string>(*first->find("samples")), ::testing::Not(HasSubstr(",")));
  for (const measure::StepRow& row : loop.seen.rows)
    EXPECT_EQ((row.flags & measure::kStepRetriedPrecision) != 0, row.step == 5 || row.step == 10 || row.step == 14)
        << row.step;

  // The same weights as a run that used fp32 for exactly the steps the guard did (the re-run and the clean step after
  // it).
  testing::fragile() = {};
  Loop reference(mixed);
  Loop safe({"task=fragile"});
  for (int64_t step = 0; step < 20; ++step) {
    const bool in_fp32 = step == 4 || step == 5 || step == 9 || step == 10 || step == 13 || step == 14;
    Loop& from = in_fp32 ? reference : safe;
    Loop& to = in_fp32 ? safe : reference;
    if (to.trainer->position().step != step) to.trainer->load(from.trainer->state());
    to.trainer->run_steps(1);
  }
  Loop& last = reference.trainer->position().step == 20 ? reference : safe;
  EXPECT_TRUE(bit_equal(loop.weights(), last.weights()));
}

TEST(Guards, SkippingCountsAndLeavesTheWeights) {
  Loop loop({"trainer.guards.non_finite=skip", "trainer.precision=16-mixed"});
  loop.trainer->run_steps(3);
  const auto before = loop.weights();
  measure::faults::fail_once("nan.gradient", 1);
  loop.trainer->run_steps(1);
  EXPECT_TRUE(bit_equal(before, loop.weights()));
  EXPECT_EQ(loop.trainer->position().skipped_steps, 1);
  EXPECT_EQ(LoopState::from_json(loop.trainer->state().state_json).loss_scale, 32768.0);
  EXPECT_TRUE(loop.seen.rows.back().flags & measure::kStepSkipped);
  loop.trainer->run_steps(1);
  EXPECT_FALSE(bit_equal(before, loop.weights()));
}

TEST(Guards, PersistentNanStopsWithACheckpointOfTheLastGoodState) {
  testing::fragile() = {};
  testing::TemporaryFolder folder;
  CheckpointStore store(folder.path(), CheckpointConfig());
  Loop loop({"task=fragile"}, &store);
  loop.trainer->run_steps(7);
  const auto good = loop.weights();
  testing::fragile().always_nan = true;
  try {
    loop.trainer->run_steps(1);
    FAIL();
  } catch (const DivergedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Step 8"));
    EXPECT_THAT(error.what(), HasSubstr("step 7 is saved"));
    EXPECT_EQ(error.code(), ExitCode::Diverged);
  }
  testing::fragile() = {};
  EXPECT_TRUE(bit_equal(good, loop.weights()));
  const auto saved = store.load_newest();
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->info.step, 7);
  for (const auto& [name, tensor] : saved->state.model) EXPECT_TRUE(torch::equal(tensor, good.at(name))) << name;
}

TEST(Guards, DamageThatReturnsAfterAReplayStops) {
  Loop loop;
  loop.trainer->run_steps(2);
  loop.seen.on_event = [](const std::string& kind) {
    if (kind == "guard.damaged") measure::faults::fail_once("nan.optimizer", 1);
  };
  measure::faults::fail_once("nan.optimizer", 1);
  EXPECT_THROW(loop.trainer->run_steps(1), DivergedError);
  EXPECT_EQ(loop.seen.count("guard.damaged"), 2);
  for (const auto& [name, tensor] : loop.weights()) EXPECT_TRUE(torch::isfinite(tensor).all().item<bool>()) << name;
}

// Fails the n-th allocation of a step for every n until none is left to fail: the step is made anyway, in halves.
TEST(Guards, EveryAllocationOfAStepMayFail) {
  const std::vector<std::string> settings = {"trainer.guards.check_weights=false"};
  Loop whole(settings);
  whole.trainer->run_steps(1);
  const CheckpointState start = [&] {
    ReplayCopy copy;
    copy.take(whole.trainer->state(), 1);
    return copy.state();
  }();
  whole.trainer->run_steps(1);
  Loop probe(settings);
  probe.trainer->load(start);
  probe.trainer->run_steps(1);
  const int64_t allocations = device::memory::stats().allocations;
  ASSERT_GT(allocations, 10);
  int64_t failed = 0;
  std::map<std::string, torch::Tensor> split;
  for (int64_t n = 1; n <= allocations + 3; ++n) {
    Loop loop(settings);
    loop.trainer->load(start);
    device::memory::fail_allocation(n);
    loop.trainer->run_steps(1);
    device::memory::fail_allocation(0);
    const auto weights = loop.weights();
    if (loop.seen.count("guard.out_of_memory") == 0) {
      EXPECT_TRUE(bit_equal(weights, whole.weights())) << n;
      continue;
    }
    ++failed;
    EXPECT_TRUE(loop.seen.rows.back().flags & measure::kStepSplitForMemory);
    EXPECT_EQ(loop.seen.rows.back().micro_batches, 2);
    EXPECT_LT(difference(whole.weights(), weights), 1e-5) << n;
    if (split.empty()) split = weights;
    EXPECT_TRUE(bit_equal(split, weights)) << n;  // each is exactly the split step
  }
  EXPECT_GT(failed, 10);
}

TEST(Guards, ALowLimitSplitsAndRemembers) {
  const std::vector<std::string> settings = {"model.hidden=4096", "model.train_ds.batch_size=32", "model.longest=64",
                                             "trainer.guards.check_weights=false"};
  Loop free(settings);
  free.trainer->run_steps(3);
  const int64_t peak = free.seen.rows.back().peak_bytes, live = free.seen.rows.back().live_bytes;
  Loop tight(settings);
  device::memory::set_limit(device::memory::stats().live_bytes + (peak - live) * 6 / 10);
  tight.trainer->run_steps(3);
  device::memory::set_limit(0);
  EXPECT_GE(tight.seen.count("guard.out_of_memory"), 1);
  EXPECT_GT(tight.trainer->position().guard_actions, 0);
  EXPECT_GE(tight.seen.rows.back().micro_batches, 2);
  EXPECT_FALSE(tight.seen.events.empty());
  EXPECT_LT(difference(free.weights(), tight.weights()), 1e-4);
  const int64_t actions = tight.seen.count("guard.out_of_memory");
  device::memory::set_limit(device::memory::stats().live_bytes + (peak - live) * 6 / 10);
  tight.trainer->run_steps(2);  // the size that worked is remembered: no further failure
  device::memory::set_limit(0);
  EXPECT_EQ(tight.seen.count("guard.out_of_memory"), actions);
}

TEST(Guards, ASampleThatFitsOnlyWithoutTheCopyOfTheStateTrains) {
  const std::vector<std::string> settings = {"model.hidden=4096", "model.train_ds.batch_size=1", "model.longest=64"};
  Loop free(settings);
  free.trainer->run_steps(4);
  const int64_t peak = free.seen.rows.back().peak_bytes, live = free.seen.rows.back().live_bytes;
  Loop tight(settings);
  tight.trainer->run_steps(2);
  device::memory::set_limit(device::memory::stats().live_bytes + (peak - live) * 9 / 10);
  tight.trainer->run_steps(2);
  device::memory::set_limit(0);
  EXPECT_EQ(tight.seen.count("guard.no_snapshot"), 1);
  EXPECT_EQ(tight.seen.count("guard.out_of_memory"), 0);
  EXPECT_TRUE(bit_equal(free.weights(), tight.weights()));
}

TEST(Guards, ASampleThatDoesNotFitSaysSo) {
  Loop loop;
  device::memory::set_limit(device::memory::stats().live_bytes + 64);
  try {
    loop.trainer->run_steps(1);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.what(), HasSubstr("one sample does not fit"));
    EXPECT_EQ(error.code(), ExitCode::OutOfMemory);
  }
  device::memory::set_limit(0);
  Loop off({"trainer.guards.out_of_memory=false", "trainer.guards.check_weights=false"});
  device::memory::fail_allocation(3);
  EXPECT_THROW(off.trainer->run_steps(1), OutOfMemoryError);
  device::memory::fail_allocation(0);
}

int64_t piece_cost(const Loop& loop) {
  return LoopState::from_json(loop.trainer->state().state_json).memory_piece_cost;
}

// Ten NaN steps and three memory failures in one run: the weights are those of a run that used the safe setting for
// those steps.
TEST(Guards, ARunFullOfFaultsEndsWhereASafeRunEnds) {
  const std::vector<std::string> settings = {"trainer.guards.check_weights=false"};
  Loop faulty(settings);
  std::vector<int64_t> costs;  // of a piece, after each step
  for (int step = 0; step < 40; ++step) {
    if (step == 5 || step == 18 || step == 33)
      device::memory::fail_allocation(7);
    else if (step % 4 == 3)
      measure::faults::fail_once(step % 8 == 3 ? "nan.gradient" : "nan.input", 1);
    faulty.trainer->run_steps(1);
    device::memory::fail_allocation(0);
    costs.push_back(piece_cost(faulty));
  }
  EXPECT_EQ(faulty.seen.count("guard.non_finite"), 10);
  EXPECT_EQ(faulty.seen.count("guard.out_of_memory"), 3);
  Loop safe(settings);
  for (int step = 0; step < 40; ++step) {
    if (piece_cost(safe) != costs[static_cast<size_t>(step)]) {
      CheckpointState state = safe.trainer->state();
      LoopState loop = LoopState::from_json(state.state_json);
      loop.memory_piece_cost = costs[static_cast<size_t>(step)];
      state.state_json = loop.to_json();
      safe.trainer->load(state);
    }
    safe.trainer->run_steps(1);
  }
  EXPECT_EQ(safe.trainer->position().guard_actions, 0);
  EXPECT_TRUE(bit_equal(safe.weights(), faulty.weights()));
}

TEST(ReplayCopy, IntervalFollowsTheCost) {
  EXPECT_EQ(copy_interval(0.1, 1.0, 0.002), 50);
  EXPECT_EQ(copy_interval(0.001, 1.0, 0.002), 10);
  EXPECT_EQ(copy_interval(1.0, 0.01, 0.002), 50000);
  EXPECT_EQ(copy_interval(0.1, 0.0, 0.002), 10);
}

}  // namespace
}  // namespace redline::train
