#include "tune/ranks/rank_ways.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

TEST(RankWays, CoresAreSharedOut) {
  const auto ways = ways_to_divide({1, 4}, {1, 2, 4, 8}, 4);
  ASSERT_EQ(ways.size(), 3u) << "1 x 4 is the job itself";
  EXPECT_EQ(ways[0].values,
            (Setting{{"trainer.devices", "2"}, {"trainer.intra_op_threads", "2"}, {"trainer.sync_batchnorm", "true"}}));
  EXPECT_EQ(ways[1].to, "4 x 1");
  EXPECT_EQ(ways[2].not_tried, "8 ranks on 4 cores only take turns");
  EXPECT_EQ(ways[0].effect, config::Effect::Nothing);
}

TEST(RankWays, FromSeveralRanksToOne) {
  const auto ways = ways_to_divide({2, 1}, {1, 2}, 2);
  ASSERT_EQ(ways.size(), 1u);
  EXPECT_EQ(ways[0].values, (Setting{{"trainer.devices", "1"}, {"trainer.intra_op_threads", "2"}}));
}

TEST(RankWays, WhatIsSent) {
  RankJob job{2, 1};
  job.gradient_mb = 20;
  Allow all;
  all.numerics = true;
  const auto ways = ways_to_send(job, {}, all);
  ASSERT_EQ(ways.size(), 4u);
  EXPECT_EQ(ways[0].values, (Setting{{"trainer.strategy.bucket_cap_mb", "1"}}));
  EXPECT_EQ(ways[1].to, "4");
  EXPECT_EQ(ways[2].values, (Setting{{"trainer.strategy.compression", "bf16"}}));
  EXPECT_EQ(ways[2].not_tried, "");
  EXPECT_NE(ways_to_send(job, {}, {})[2].not_tried.find("--allow numerics"), std::string::npos);
  job.gradient_mb = 0.5;
  EXPECT_EQ(ways_to_send(job, {}, all).size(), 3u) << "one bucket holds all";
  EXPECT_EQ(ways_to_send(job, {{"trainer.devices", "1"}}, all)[0].not_tried, "one process sends nothing");
}

}  // namespace
}  // namespace redline::tune
