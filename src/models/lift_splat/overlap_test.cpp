// Areas and what is made of them, against sums done by hand; mmseg's definitions (mmseg/core/evaluation/metrics.py).
#include "models/lift_splat/overlap.h"

#include <gtest/gtest.h>

namespace redline::models::lift_splat {
namespace {

TEST(Overlap, OfOneClassByHand) {
  Overlap overlap({"vehicle"});
  // Cells: hit, hit, miss, false alarm, right background, right background.
  const torch::Tensor truth = torch::tensor({1.0f, 1.0f, 1.0f, 0.0f, 0.0f, 0.0f}).view({1, 1, 2, 3}),
                      logits = torch::tensor({2.0f, 0.1f, -1.0f, 3.0f, -0.1f, 0.0f}).view({1, 1, 2, 3});
  overlap.add(logits, truth);
  const auto values = overlap.metrics(overlap.take());
  EXPECT_DOUBLE_EQ(values.at("vehicle_iou"), 2.0 / 4.0);
  EXPECT_DOUBLE_EQ(values.at("miou"), (2.0 / 4.0 + 2.0 / 4.0) / 2);  // background: 2 hits of 3 predicted, 3 real
  EXPECT_DOUBLE_EQ(values.at("macc"), (2.0 / 3.0 + 2.0 / 3.0) / 2);
  EXPECT_DOUBLE_EQ(values.at("aacc"), 4.0 / 6.0);
  for (const double left : overlap.take()) EXPECT_EQ(left, 0.0) << "sums begin anew";
}

TEST(Overlap, IsPooledNotAveraged) {
  Overlap overlap({"vehicle"});
  const auto cells = [](std::vector<float> values) { return torch::tensor(values).view({1, 1, 1, -1}); };
  overlap.add(cells({1, 1, 1, 1, -1, -1}), cells({1, 1, 1, 1, 0, 0}));      // 4 of 4
  overlap.add(cells({1, -1, -1, -1, -1, -1}), cells({0, 1, 0, 0, 0, 0}));   // 0 of 2
  overlap.add(cells({-1, -1, -1, -1, -1, -1}), cells({0, 0, 0, 0, 0, 0}));  // nothing there, nothing said
  const auto values = overlap.metrics(overlap.take());
  EXPECT_DOUBLE_EQ(values.at("vehicle_iou"), 4.0 / 6.0) << "the mean of batches would be 0.5 or 0.67 with an empty one";
}

TEST(Overlap, SeveralClassesHaveOneLabelForMmsegAndMapsOfTheirOwnForIou) {
  Overlap overlap({"vehicle", "human"});
  // Two maps of four cells. Labels by the larger score above 0: vehicle, human, background, vehicle.
  const torch::Tensor logits = torch::tensor({2.0f, 1.0f, -1.0f, 1.0f, 1.0f, 2.0f, -2.0f, -1.0f}).view({1, 2, 2, 2});
  const torch::Tensor truth = torch::tensor({1.0f, 0.0f, 0.0f, 0.0f, 0.0f, 1.0f, 0.0f, 1.0f}).view({1, 2, 2, 2});
  overlap.add(logits, truth);
  const auto values = overlap.metrics(overlap.take());
  EXPECT_DOUBLE_EQ(values.at("vehicle_iou"), 1.0 / 3.0);
  EXPECT_DOUBLE_EQ(values.at("human_iou"), 1.0 / 3.0);
  // Real labels: vehicle, human, background, human. Background 1/1, vehicle 1/2, human 1/2.
  EXPECT_DOUBLE_EQ(values.at("miou"), (1.0 + 0.5 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(values.at("macc"), (1.0 + 1.0 + 0.5) / 3);
  EXPECT_DOUBLE_EQ(values.at("aacc"), 0.75);
}

TEST(Overlap, AClassThatIsNowhereIsLeftOutOfMeans) {
  Overlap overlap({"vehicle"});
  overlap.add(torch::full({1, 1, 2, 2}, -1.0f), torch::zeros({1, 1, 2, 2}));
  const auto values = overlap.metrics(overlap.take());
  EXPECT_EQ(values.count("vehicle_iou"), 0u);
  EXPECT_DOUBLE_EQ(values.at("miou"), 1.0);
  EXPECT_DOUBLE_EQ(values.at("macc"), 1.0);
}

TEST(Overlap, KeepsAreasOnly) {
  Overlap overlap({"vehicle"});
  const size_t before = overlap.take().size();
  for (int batch = 0; batch < 3; ++batch) overlap.add(torch::randn({4, 1, 64, 64}), torch::zeros({4, 1, 64, 64}));
  EXPECT_EQ(overlap.take().size(), before) << "as many numbers after any number of batches: no prediction is kept";
  EXPECT_EQ(before, 8u);
}

}  // namespace
}  // namespace redline::models::lift_splat
