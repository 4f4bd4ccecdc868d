#include "report/parts/config_keys.h"

#include <gtest/gtest.h>

namespace redline::report {
namespace {

TEST(ConfigKeys, OnlyWhatDiffersAndIsNoPlace) {
  const auto keys =
      different_keys({"trainer: {precision: 32-true, max_steps: 5}\nexp_manager: {run_dir: a}\n",
                      "trainer: {precision: bf16-mixed, max_steps: 5}\nexp_manager: {run_dir: b}\nseed: 3\n"});
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].key, "seed");
  EXPECT_EQ(keys[0].values, (std::vector<std::string>{"-", "3"}));
  EXPECT_EQ(keys[1].key, "trainer.precision");
  EXPECT_EQ(keys[1].values, (std::vector<std::string>{"32-true", "bf16-mixed"}));
  EXPECT_TRUE(different_keys({"a: [", "a: ["}).empty()) << "what cannot be read says nothing";
}

TEST(ConfigKeys, WhatSomebodySet) {
  const auto set = keys_that_were_set(
      "trainer:\n  amp:\n    scale: 3  # default\n  max_steps: 30  # flag trainer.max_steps=30\n  threads: 2  # "
      "resolved\n"
      "model:\n  train_ds:\n    path: /x/y  # job.yaml:3:4\nname: \"a: b\"  # job.yaml:1:7\n");
  ASSERT_EQ(set.size(), 3u);
  EXPECT_EQ(set[0], (std::pair<std::string, std::string>{"trainer.max_steps: 30", "flag trainer.max_steps=30"}));
  EXPECT_EQ(set[1].first, "model.train_ds.path: /x/y");
  EXPECT_EQ(set[2].first, "name: \"a: b\"");
}

}  // namespace
}  // namespace redline::report
