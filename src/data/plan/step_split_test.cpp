#include "data/plan/step_split.h"

#include <gtest/gtest.h>

#include <set>

#include "core/philox.h"

namespace redline::data {
namespace {

double split_length(int64_t i) { return static_cast<double>(mix_key(3, static_cast<uint64_t>(i)) % 1000); }

std::shared_ptr<const EpochPlan> split_plan(int64_t size, int64_t batch, int64_t groups_per_step,
                                            double group_length = 0) {
  PlanSettings settings{.seed = 1,
                        .shuffle = true,
                        .batch_size = batch,
                        .groups_per_step = groups_per_step,
                        .group_length = group_length};
  return Planner(settings, {size, split_length, {}, 1}).epoch(0);
}

std::vector<uint32_t> rows_of(const StepSplit& split, size_t micro) {
  std::vector<uint32_t> entries;
  for (uint32_t r = split.micro_begin[micro]; r < split.micro_begin[micro + 1]; ++r)
    entries.push_back(split.entries[split.rows[r]]);
  return entries;
}

struct SplitCase {
  int64_t size, batch, groups_per_step, micro;
  bool keep_groups, bounded, mixes;
};

class SplitGrid : public testing::TestWithParam<SplitCase> {};

// The union over ranks is the step, each sample once, with the same number of micro-batches on every rank, whatever the
// split.
TEST_P(SplitGrid, RanksAndMicroBatchesOnlySplitTheStep) {
  const SplitCase c = GetParam();
  const auto plan = split_plan(c.size, c.batch, c.groups_per_step);
  for (int world : {1, 2, 3, 5}) {
    for (int64_t step = 0; step < plan->num_steps(); ++step) {
      std::multiset<uint32_t> expected, found;
      for (const auto& group : plan->step(step)) expected.insert(plan->of(group).begin(), plan->of(group).end());
      std::set<size_t> counts;
      size_t fewest = SIZE_MAX, most = 0;
      for (int rank = 0; rank < world; ++rank) {
        const StepSplit split =
            split_step(*plan, step, {rank, world, c.micro, c.keep_groups, c.bounded, c.mixes}, split_length);
        counts.insert(split.num_micro_batches());
        for (size_t m = 0; m < split.num_micro_batches(); ++m) {
          const auto rows = rows_of(split, m);
          if (c.micro > 0) {
            EXPECT_LE(rows.size(), static_cast<size_t>(c.micro));
          }
          found.insert(rows.begin(), rows.end());
        }
        fewest = std::min(fewest, split.rows.size());
        most = std::max(most, split.rows.size());
        if (!c.mixes) {
          EXPECT_EQ(split.entries.size(), split.rows.size()) << "nothing is read in vain";
        }
        EXPECT_EQ(split.groups.empty(), !c.mixes || split.rows.empty());
      }
      EXPECT_EQ(found, expected);
      EXPECT_EQ(counts.size(), 1u);
      if (!c.keep_groups && !c.bounded && !c.mixes) {
        EXPECT_LE(most - fewest, 1u + counts.size());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SplitGrid,
    testing::Values(SplitCase{64, 8, 1, 0, false, false, false}, SplitCase{61, 8, 2, 4, false, false, false},
                    SplitCase{61, 8, 4, 3, false, false, true}, SplitCase{61, 7, 3, 0, true, false, false},
                    SplitCase{61, 6, 3, 2, true, false, true}, SplitCase{64, 8, 4, 3, false, true, false},
                    SplitCase{10, 1, 1, 1, false, false, false}, SplitCase{5, 2, 6, 1, false, true, true}));

TEST(StepSplit, SortsByLengthAcrossTheStep) {
  const auto plan = split_plan(64, 8, 4);
  const StepSplit split = split_step(*plan, 0, {0, 1, 4, false, false, false}, split_length);
  ASSERT_EQ(split.num_micro_batches(), 8u);
  double last = -1;
  for (size_t m = 0; m < 8; ++m) {
    for (uint32_t entry : rows_of(split, m)) {
      EXPECT_GE(split_length(entry), last);
      last = split_length(entry);
    }
  }
}

TEST(StepSplit, AutoMakesAsManyMicroBatchesAsGroups) {
  const auto plan = split_plan(64, 8, 4);
  EXPECT_EQ(split_step(*plan, 0, {0, 1, 0, false, false, false}, split_length).num_micro_batches(), 4u);
  EXPECT_EQ(split_step(*plan, 0, {0, 2, 0, false, false, false}, split_length).num_micro_batches(), 2u);
}

TEST(StepSplit, BatchStatisticsKeepGroupsAsDrawn) {
  const auto plan = split_plan(64, 8, 4);
  const StepSplit split = split_step(*plan, 1, {0, 1, 0, true, false, false}, [](int64_t) -> double { throw 1; });
  ASSERT_EQ(split.num_micro_batches(), 4u);
  for (size_t m = 0; m < 4; ++m) {
    const auto group = plan->of(plan->step(1)[m]);
    EXPECT_EQ(rows_of(split, m), std::vector<uint32_t>(group.begin(), group.end()));
  }
  // Two ranks take whole groups in turn.
  const StepSplit second = split_step(*plan, 1, {1, 2, 0, true, false, false}, split_length);
  ASSERT_EQ(second.num_micro_batches(), 2u);
  const auto group = plan->of(plan->step(1)[1]);
  EXPECT_EQ(rows_of(second, 0), std::vector<uint32_t>(group.begin(), group.end()));
}

TEST(StepSplit, RanksWhoseStatisticsSpanThemShareEveryGroup) {
  const auto plan = split_plan(24, 5, 2);
  for (const bool across : {true, false}) {
    std::vector<StepSplit> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.push_back(
          split_step(*plan, 0, {.rank = rank, .world = 2, .keep_groups = true, .across_ranks = across}, split_length));
    const size_t groups = plan->step(0).size();
    ASSERT_EQ(groups, 2u);
    ASSERT_EQ(ranks[0].num_micro_batches(), across ? groups : 1u) << "else each rank has a whole group";
    if (!across) continue;
    for (size_t g = 0; g < groups; ++g) {
      std::vector<uint32_t> together = rows_of(ranks[0], g);
      const std::vector<uint32_t> second = rows_of(ranks[1], g);
      together.insert(together.end(), second.begin(), second.end());
      const auto group = plan->of(plan->step(0)[g]);
      EXPECT_EQ(together, std::vector<uint32_t>(group.begin(), group.end()));
    }
  }
}

TEST(StepSplit, MixingRanksReadWholeGroupsOnlyWhereTheyMust) {
  const auto plan = split_plan(64, 8, 2);
  const StepSplit even = split_step(*plan, 0, {0, 2, 0, false, false, true}, split_length);
  EXPECT_EQ(even.entries.size(), 8u) << "two groups on two ranks: one each";
  const StepSplit odd = split_step(*plan, 0, {0, 3, 0, false, false, true}, split_length);
  EXPECT_EQ(odd.entries.size(), 16u) << "two groups on three ranks: both are read where rows of both are owned";
  EXPECT_LT(odd.rows.size(), 8u);
}

TEST(StepSplit, BoundedGroupsStayBounded) {
  const auto plan = split_plan(200, 50, 4, 3000.0);
  for (int64_t step = 0; step < plan->num_steps(); ++step) {
    const StepSplit split = split_step(*plan, step, {0, 1, 0, false, true, false}, split_length);
    for (size_t m = 0; m < split.num_micro_batches(); ++m) {
      double longest = 0;
      const auto rows = rows_of(split, m);
      for (uint32_t e : rows) longest = std::max(longest, split_length(e));
      if (rows.size() > 1) {
        EXPECT_LE(longest * static_cast<double>(rows.size()), 3000.0);
      }
    }
  }
}

}  // namespace
}  // namespace redline::data
