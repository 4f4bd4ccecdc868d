#include "train/checkpoint/retention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace redline::train {
namespace {

using Removed = std::vector<size_t>;

std::vector<RetainedItem> with_metrics(const std::vector<double>& metrics) {  // infinity stands for "no metric"
  std::vector<RetainedItem> items;
  for (size_t i = 0; i < metrics.size(); ++i) {
    items.push_back(
        {static_cast<int64_t>(100 * (i + 1)), std::isinf(metrics[i]) ? std::nullopt : std::optional(metrics[i])});
  }
  return items;
}

TEST(Retention, Table) {
  const double none = std::numeric_limits<double>::infinity(), nan = std::nan("");
  struct Row {
    const char* why;
    std::vector<double> metrics;
    RetentionPolicy policy;
    Removed expected;
  };
  const Row rows[] = {
      {"nothing there", {}, {}, {}},
      {"two are never touched", {2, 1}, {.save_top_k = 0, .max_keep_ckpts = 0}, {}},
      {"last two and the best", {3, 1, 2, 5, 4}, {}, {0, 2}},
      {"the best is among the last two", {3, 2, 1}, {}, {0}},
      {"higher is better", {3, 9, 2, 5, 4}, {.lower_is_better = false}, {0, 2}},
      {"top 2", {3, 1, 2, 5, 4}, {.save_top_k = 2}, {0}},
      {"top 0: only the last", {3, 1, 2, 5, 4}, {.save_top_k = 0}, {0, 1, 2}},
      {"top -1 keeps all", {3, 1, 2, 5, 4}, {.save_top_k = -1}, {}},
      {"top -1 but at most three: the best of the old ones stays",
       {3, 1, 2, 5, 4},
       {.save_top_k = -1, .max_keep_ckpts = 3},
       {0, 2}},
      {"keep last 4", {none, none, none, none, none}, {.keep_last = 4}, {0}},
      {"keep last 1 is 2", {none, none, none}, {.keep_last = 1, .save_top_k = 0}, {0}},
      {"at most 2: the newest two win over the best", {1, 5, 6}, {.max_keep_ckpts = 2}, {0}},
      {"NaN is never best", {nan, 7, 8, 9}, {}, {0}},
      {"ties keep the earlier", {5, 5, 9, 9}, {}, {1}},
      {"without metrics only the newest", {none, none, none, none}, {.save_top_k = 3}, {0, 1}},
  };
  for (const Row& row : rows) {
    EXPECT_EQ(generations_to_remove(with_metrics(row.metrics), row.policy), row.expected) << row.why;
  }
}

TEST(Retention, TheNewestTwoAndTheBestSurviveAnyHistory) {
  std::vector<RetainedItem> kept;
  for (int step = 1; step <= 200; ++step) {
    kept.push_back({step, std::fmod(step * 37.0, 101.0)});
    const Removed removed = generations_to_remove(kept, {.keep_last = 3, .save_top_k = 2, .max_keep_ckpts = 4});
    for (size_t i = removed.size(); i-- > 0;) kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(removed[i]));
    ASSERT_LE(kept.size(), 4u);
    EXPECT_EQ(kept.back().step, step);
    if (step > 1) {
      EXPECT_EQ(kept[kept.size() - 2].step, step - 1);
    }
  }
  EXPECT_EQ(kept[0].step, 71);   // 37 * 71 mod 101 = 1
  EXPECT_EQ(kept[1].step, 101);  // 37 * 101 mod 101 = 0
}

}  // namespace
}  // namespace redline::train
