// Real SIGKILLs against a real process, half of them aimed at the save window: 20 here, 200 with REDLINE_SLOW=1. Flawed
// variants of the same job must be caught, or the campaign would prove nothing.
#include "train/chaos.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

namespace redline::train {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

ChaosResult campaign(const std::string& flaw, int64_t kills, uint64_t seed) {
  ChaosRequest request;
  request.command = {REDLINE_CHAOS_JOB, "train", flaw};
  request.work_directory = fs::temp_directory_path() / ("redline_chaos_" + std::to_string(::getpid()) + "_" + flaw);
  request.kills = kills;
  request.seed = seed;
  request.timeout_seconds = 300;
  request.varied = {{"num_workers", {"0", "1", "2", "4"}}};
  fs::remove_all(request.work_directory);
  ChaosResult result = run_chaos(request, [](const std::string&) {});
  fs::remove_all(request.work_directory);
  return result;
}

TEST(Chaos, KillsChangeNothing) {
  const char* slow = std::getenv("REDLINE_SLOW");
  const int64_t kills = slow != nullptr && std::string(slow) == "1" ? 200 : 20;
  const ChaosResult result = campaign("none", kills, 1);
  for (const std::string& problem : result.problems) ADD_FAILURE() << problem;
  EXPECT_TRUE(result.passed());
  EXPECT_EQ(result.kills, kills);
  EXPECT_GE(result.aimed_kills, kills / 4);
  EXPECT_EQ(result.unreadable_states, 0);
  EXPECT_EQ(result.steps, 60);
  EXPECT_EQ(result.samples, 240);
  EXPECT_EQ(result.epochs, 3);
  std::printf("%ld kills (%ld aimed), %ld runs, %ld states checked, %ld unreadable; bound %.2f %%\n", result.kills,
              result.aimed_kills, result.completed_runs, result.states_checked, result.unreadable_states,
              100 * result.upper_bound());
}

TEST(Chaos, FlawedJobsAreCaught) {
  const ChaosResult momentum = campaign("forgets_momentum", 12, 2);
  ASSERT_FALSE(momentum.passed());
  EXPECT_THAT(momentum.problems.front(), HasSubstr("differs in loss"));
  const ChaosResult batch = campaign("skips_batch", 12, 3);
  ASSERT_FALSE(batch.passed());
}

TEST(Chaos, PlansAreDrawnFromTheSeedAndCoverTheWindow) {
  ChaosRequest request;
  request.varied = {{"num_workers", {"0", "1", "2"}}, {"prefetch_factor", {"1", "4"}}};
  const KillWindow window{0.5, 3.5, 20};
  KeyedStream random(1, 0, 0, 0), again(1, 0, 0, 0);
  int aimed = 0, inside = 0;
  std::set<std::string> settings;
  for (int i = 0; i < 1000; ++i) {
    const KillPlan plan = plan_kill(random, request, window), copy = plan_kill(again, request, window);
    EXPECT_EQ(plan.operation, copy.operation);
    EXPECT_EQ(plan.overrides, copy.overrides);
    EXPECT_GE(plan.operation, 1);
    EXPECT_LE(plan.operation, 30);
    EXPECT_LT(plan.after_seconds, 1.5);
    ASSERT_EQ(plan.overrides.size(), 2u);
    settings.insert(plan.overrides[0] + plan.overrides[1]);
    aimed += plan.aimed, inside += plan.inside_operation;
  }
  EXPECT_NEAR(aimed, 500, 80);
  EXPECT_NEAR(inside, 500, 80);
  EXPECT_EQ(settings.size(), 6u);
}

TEST(Chaos, SamplesAreHeldAgainstTheUndisturbedRun) {
  const std::map<int64_t, SampleRow> expected = {{1, {0, {3, 1}}}, {2, {0, {2, 0}}}, {3, {1, {1, 3}}}};
  auto problem = [&](const std::map<int64_t, SampleRow>& found) {
    std::vector<std::string> problems;
    compare_samples(expected, found, "run", problems);
    return problems.empty() ? std::string("none") : problems.front();
  };
  EXPECT_EQ(problem(expected), "none");
  EXPECT_THAT(problem({{1, {0, {3, 1}}}, {2, {0, {2, 3}}}, {3, {1, {1, 3}}}}),
              HasSubstr("sample 3 came twice in epoch 0"));
  EXPECT_THAT(problem({{1, {0, {3, 1}}}, {3, {1, {1, 3}}}}), HasSubstr("step 2 used other samples"));
  EXPECT_THAT(problem({{1, {0, {3, 1}}}, {2, {0, {0, 2}}}, {3, {1, {1, 3}}}}), HasSubstr("step 2"));
  std::vector<std::string> problems;
  compare_samples({}, {}, "run", problems);
  EXPECT_THAT(problems.front(), HasSubstr("no log"));
}

}  // namespace
}  // namespace redline::train
