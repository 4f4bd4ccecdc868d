#include "models/convnext/losses.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "models/layers/layer_test_tools.h"

namespace redline::models::convnext {
namespace {

using models::testing::wave;

// The gradient by central differences, in double.
void expect_gradient(const torch::Tensor& x_in, const std::function<torch::Tensor(const torch::Tensor&)>& f) {
  torch::Tensor x = x_in.to(torch::kFloat64).clone().requires_grad_(true);
  f(x).backward();
  const torch::NoGradGuard no_grad;
  torch::Tensor probe = x.detach().clone();
  double* at = probe.mutable_data_ptr<double>();
  const torch::Tensor grad = x.grad().contiguous();
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < probe.numel(); ++i) {
    const double before = at[i];
    at[i] = before + kStep;
    const double up = f(probe).item<double>();
    at[i] = before - kStep;
    const double down = f(probe).item<double>();
    at[i] = before;
    EXPECT_NEAR(grad.const_data_ptr<double>()[i], (up - down) / (2 * kStep), 1e-5) << i;
  }
}

const torch::Tensor kLabels = torch::tensor({0, 1, 0, 2, 1, 0, 3}, torch::kInt64);  // 2 and 3 have no positive
torch::Tensor embeddings() { return 0.8 * wave({7, 5}, 0.3, torch::kFloat64); }

// Straight from the paper's sum, anchor by anchor.
double contrastive_by_loops(const torch::Tensor& z, const torch::Tensor& labels, double temperature) {
  double total = 0.0;
  int64_t anchors = 0;
  const int64_t n = z.size(0);
  const auto similar = [&](int64_t i, int64_t j) { return z[i].dot(z[j]).item<double>() / temperature; };
  for (int64_t i = 0; i < n; ++i) {
    double denominator = 0.0, sum = 0.0;
    int64_t positives = 0;
    for (int64_t j = 0; j < n; ++j)
      if (j != i) denominator += std::exp(similar(i, j));
    for (int64_t j = 0; j < n; ++j)
      if (j != i && labels[i].item<int64_t>() == labels[j].item<int64_t>()) {
        sum += similar(i, j) - std::log(denominator);
        ++positives;
      }
    if (positives == 0) continue;
    total -= sum / static_cast<double>(positives);
    ++anchors;
  }
  return total / static_cast<double>(anchors);
}

TEST(Losses, SupervisedContrastive) {
  LossOptions options;
  options.temperature = 0.5;
  options.base_temperature = 0.5;
  const torch::Tensor z = unit_rows(embeddings());
  const MeanLoss loss = supervised_contrastive(z, kLabels, options);
  EXPECT_NEAR(loss.value.item<double>(), contrastive_by_loops(z, kLabels, 0.5), 1e-9);
  EXPECT_EQ(loss.weight.item<double>(), 5.0);
  options.base_temperature = 0.25;
  EXPECT_NEAR(supervised_contrastive(z, kLabels, options).value.item<double>(), 2.0 * loss.value.item<double>(), 1e-9);
  expect_gradient(embeddings(),
                  [&](const torch::Tensor& x) { return supervised_contrastive(unit_rows(x), kLabels, options).value; });
}

TEST(Losses, TripletBatchHard) {
  LossOptions options;
  options.triplet_margin = 0.3;
  const torch::Tensor x = embeddings();
  double total = 0.0;
  int64_t anchors = 0;
  for (int64_t i = 0; i < 7; ++i) {
    double far = -1.0, near = 1e9;
    for (int64_t j = 0; j < 7; ++j) {
      if (i == j) continue;
      const double d = (x[i] - x[j]).norm().item<double>();
      if (kLabels[i].item<int64_t>() == kLabels[j].item<int64_t>())
        far = std::max(far, d);
      else
        near = std::min(near, d);
    }
    if (far < 0.0) continue;
    total += std::max(0.0, far - near + 0.3);
    ++anchors;
  }
  const MeanLoss loss = triplet(x, kLabels, options);
  EXPECT_NEAR(loss.value.item<double>(), total / static_cast<double>(anchors), 1e-9);
  EXPECT_EQ(loss.weight.item<double>(), 5.0);
  expect_gradient(x, [&](const torch::Tensor& v) { return triplet(v, kLabels, options).value; });
}

TEST(Losses, TripletBatchAll) {
  LossOptions options;
  options.triplet_margin = 0.3;
  options.triplet_mining = "batch_all";
  const torch::Tensor x = embeddings();
  double total = 0.0, count = 0.0;
  for (int64_t a = 0; a < 7; ++a)
    for (int64_t p = 0; p < 7; ++p)
      for (int64_t n = 0; n < 7; ++n) {
        const auto label = [](int64_t i) { return kLabels[i].item<int64_t>(); };
        if (a == p || label(a) != label(p) || label(a) == label(n)) continue;
        const double l = (x[a] - x[p]).norm().item<double>() - (x[a] - x[n]).norm().item<double>() + 0.3;
        if (l <= 0.0) continue;
        total += l;
        count += 1.0;
      }
  const MeanLoss loss = triplet(x, kLabels, options);
  EXPECT_NEAR(loss.value.item<double>(), total / count, 1e-9);
  EXPECT_EQ(loss.weight.item<double>(), count);
  expect_gradient(x, [&](const torch::Tensor& v) { return triplet(v, kLabels, options).value; });
}

// Nothing to compare: the loss is 0, weighs nothing and has a gradient of 0, never NaN. Equal samples have a distance
// of 0, where the square root has no derivative.
TEST(Losses, WithoutPositivesOrWithEqualSamples) {
  LossOptions options;
  for (const char* mining : {"batch_hard", "batch_all"}) {
    options.triplet_mining = mining;
    for (const torch::Tensor& labels :
         {torch::arange(7, torch::kInt64), torch::zeros({7}, torch::kInt64), torch::zeros({7}, torch::kInt64)}) {
      torch::Tensor x = embeddings().to(torch::kFloat32).requires_grad_(true);
      const MeanLoss loss = triplet(x, labels, options);
      loss.value.backward();
      EXPECT_EQ(loss.value.item<double>(), 0.0);
      EXPECT_EQ(loss.weight.item<double>(), 0.0);
      EXPECT_EQ(x.grad().abs().max().item<double>(), 0.0);
    }
    torch::Tensor same = torch::ones({7, 5}).requires_grad_(true);
    const MeanLoss equal = triplet(same, kLabels, options);
    equal.value.backward();
    EXPECT_NEAR(equal.value.item<double>(), options.triplet_margin, 1e-6);
    EXPECT_TRUE(same.grad().isfinite().all().item<bool>());
  }
  for (const int64_t n : {1, 7}) {
    torch::Tensor x = embeddings().narrow(0, 0, n).to(torch::kFloat32).requires_grad_(true);
    const MeanLoss lone = supervised_contrastive(unit_rows(x), torch::arange(n, torch::kInt64), options);
    lone.value.backward();
    EXPECT_EQ(lone.value.item<double>(), 0.0);
    EXPECT_EQ(lone.weight.item<double>(), 0.0);
    EXPECT_EQ(x.grad().abs().max().item<double>(), 0.0);
  }
  torch::Tensor zeros = torch::zeros({7, 5}).requires_grad_(true);
  supervised_contrastive(unit_rows(zeros), kLabels, options).value.backward();
  EXPECT_TRUE(zeros.grad().isfinite().all().item<bool>());
}

TEST(Losses, ArcFace) {
  LossOptions options;
  options.arcface_scale = 4.0;
  const torch::Tensor weights = wave({4, 5}, 1.1, torch::kFloat64), x = embeddings();
  const torch::Tensor logits = arcface_logits(x, weights, kLabels, options);
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t c = 0; c < 4; ++c) {
      const double cosine = (x[i].dot(weights[c]) / (x[i].norm() * weights[c].norm())).item<double>();
      const double angle = std::acos(cosine);
      const bool right = kLabels[i].item<int64_t>() == c;
      const double moved = angle + 0.5 <= M_PI ? std::cos(angle + 0.5) : cosine - 0.5 * std::sin(0.5);
      EXPECT_NEAR(logits[i][c].item<double>(), 4.0 * (right ? moved : cosine), 1e-6) << i << " " << c;
    }
  expect_gradient(x, [&](const torch::Tensor& v) {
    return cross_entropy(arcface_logits(v, weights, kLabels, options), kLabels, 0.1).value;
  });
  // On the class's own direction, and on its opposite: finite.
  torch::Tensor edge = torch::cat({weights[0].unsqueeze(0), -weights[0].unsqueeze(0)}).requires_grad_(true);
  cross_entropy(arcface_logits(edge, weights, torch::zeros({2}, torch::kInt64), options),
                torch::zeros({2}, torch::kInt64), 0.0)
      .value.backward();
  EXPECT_TRUE(edge.grad().isfinite().all().item<bool>());
}

TEST(Losses, CenterAndSoftTargets) {
  const torch::Tensor centers = wave({4, 5}, 1.1, torch::kFloat64), x = embeddings();
  double sum = 0.0;
  for (int64_t i = 0; i < 7; ++i) sum += (x[i] - centers[kLabels[i].item<int64_t>()]).pow(2).sum().item<double>();
  EXPECT_NEAR(center_distance(x, centers, kLabels).item<double>(), sum / 7.0, 1e-9);
  expect_gradient(x, [&](const torch::Tensor& v) { return center_distance(v, centers, kLabels); });
  // Targets that are one class are the labels; smoothing acts on both alike.
  const torch::Tensor logits = wave({7, 4}, 0.2, torch::kFloat64),
                      hard = torch::one_hot(kLabels, 4).to(torch::kFloat64);
  for (double smoothing : {0.0, 0.1})
    EXPECT_NEAR(cross_entropy(logits, hard, smoothing).value.item<double>(),
                cross_entropy(logits, kLabels, smoothing).value.item<double>(), 1e-9);
  EXPECT_GT(std::abs(cross_entropy(logits, kLabels, 0.1).value.item<double>() -
                     cross_entropy(logits, kLabels, 0.0).value.item<double>()),
            1e-4);
}

}  // namespace
}  // namespace redline::models::convnext
