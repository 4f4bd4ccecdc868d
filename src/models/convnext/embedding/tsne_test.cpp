#include "models/convnext/embedding/tsne.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"
#include "models/convnext/embedding/pca.h"
#include "models/convnext/embedding/separation.h"

namespace redline::models::embedding {
namespace {

EmbeddingSet blobs(int64_t n, int64_t d, int64_t count, double apart) {
  EmbeddingSet set;
  set.vectors = torch::empty({n, d});
  for (int64_t i = 0; i < n; ++i) {
    KeyedStream draw(11, 0, static_cast<uint64_t>(i), 0);
    set.labels.push_back(i % count);
    for (int64_t j = 0; j < d; ++j)
      set.vectors[i][j] = draw.normal() + apart * std::cos(static_cast<double>((i % count) * 29 + j * 3));
  }
  return set;
}

TEST(PrincipalComponents, FindTheAxesOfVarianceWithFixedSigns) {
  // Most along (3, 4, 0) / 5, some along z.
  torch::Tensor x = torch::empty({500, 3});
  for (int64_t i = 0; i < 500; ++i) {
    KeyedStream draw(2, 0, static_cast<uint64_t>(i), 0);
    const double along = 5.0 * draw.normal(), z = draw.normal(), rest = 0.1 * draw.normal();
    x[i][0] = 100.0 + 0.6 * along - 0.8 * rest, x[i][1] = -7.0 + 0.8 * along + 0.6 * rest, x[i][2] = z;
  }
  const Projection found = principal_components(x, 2);
  const torch::Tensor along = (x.to(torch::kFloat64) - x.to(torch::kFloat64).mean(0))
                                  .mv(torch::tensor(std::vector<double>{0.6, 0.8, 0.0}, torch::kFloat64));
  EXPECT_LT((found.points.select(1, 0) - along).abs().max().item<double>(), 0.3);
  EXPECT_NEAR(found.explained[0], 25.0 / 26.01, 0.02);
  EXPECT_NEAR(found.explained[1], 1.0 / 26.01, 0.01);
  // The sign belongs to the axis: the mirrored data is the mirrored picture.
  EXPECT_LT((principal_components(-x, 2).points + found.points).abs().max().item<double>(), 1e-9);
  EXPECT_EQ(principal_components(torch::ones({4, 1}), 2).points.abs().max().item<double>(), 0.0);
}

// Against the definition: every pair, in double precision.
TEST(Tsne, GradientAndDivergenceAreTheDefinitions) {
  const EmbeddingSet set = blobs(60, 5, 3, 2.0);
  const Affinities affinities = tsne_affinities(set.vectors, 8.0);
  std::vector<float> x, y, gx, gy;
  for (uint64_t i = 0; i < 60; ++i) {
    KeyedStream draw(4, 0, i, 0);
    x.push_back(static_cast<float>(draw.normal()));
    y.push_back(static_cast<float>(draw.normal()));
  }
  const auto divergence_at = [&](const std::vector<double>& px, const std::vector<double>& py) {
    double normaliser = 0.0, sum = 0.0;
    const auto q = [&](size_t i, size_t j) {
      return 1.0 / (1.0 + (px[i] - px[j]) * (px[i] - px[j]) + (py[i] - py[j]) * (py[i] - py[j]));
    };
    for (size_t i = 0; i < px.size(); ++i)
      for (size_t j = 0; j < px.size(); ++j) normaliser += i == j ? 0.0 : q(i, j);
    for (size_t i = 0; i < px.size(); ++i)
      for (auto e = static_cast<size_t>(affinities.begin[i]); e < static_cast<size_t>(affinities.begin[i + 1]); ++e) {
        const double p = affinities.p[e];
        sum += p * std::log(p / (q(i, static_cast<size_t>(affinities.neighbour[e])) / normaliser));
      }
    return sum;
  };
  std::vector<double> dx(x.begin(), x.end());
  const std::vector<double> dy(y.begin(), y.end());
  double divergence = 0.0;
  tsne_gradient(affinities, x, y, 1.0, gx, gy, &divergence);
  EXPECT_NEAR(divergence, divergence_at(dx, dy), 1e-5);
  for (const size_t i : {0u, 7u, 31u, 59u}) {
    const double at = dx[i], step = 1e-5;
    dx[i] = at + step;
    const double more = divergence_at(dx, dy);
    dx[i] = at - step;
    const double less = divergence_at(dx, dy);
    dx[i] = at;
    EXPECT_NEAR(gx[i], (more - less) / (2 * step), 1e-5) << i;
  }
}

TEST(Tsne, AffinitiesHaveThePerplexityAndSumToOne) {
  const EmbeddingSet set = blobs(200, 6, 4, 1.0);
  const Affinities affinities = tsne_affinities(set.vectors, 20.0);
  double sum = 0.0;
  for (const float p : affinities.p) sum += p;
  EXPECT_NEAR(sum, 1.0, 1e-5);
  // Symmetric: what i gives j, j gives i.
  std::map<std::pair<int64_t, int64_t>, float> all;
  for (int64_t i = 0; i < 200; ++i)
    for (auto e = affinities.begin[static_cast<size_t>(i)]; e < affinities.begin[static_cast<size_t>(i) + 1]; ++e)
      all[{i, affinities.neighbour[static_cast<size_t>(e)]}] = affinities.p[static_cast<size_t>(e)];
  for (const auto& [pair, p] : all) EXPECT_EQ(all.at({pair.second, pair.first}), p);
}

TEST(Tsne, KeepsClassesApartAndIsTheSameForAnyThreads) {
  const EmbeddingSet set = blobs(240, 10, 4, 4.0);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const TsneResult one = tsne(set.vectors);
  at::set_num_threads(2);
  const TsneResult two = tsne(set.vectors);
  at::set_num_threads(before);
  EXPECT_TRUE(torch::equal(one.points, two.points));
  EmbeddingSet flat{one.points.to(torch::kFloat32), set.labels, {}};
  EXPECT_EQ(measure_separation(flat).recall.at(1), 1.0);
  // No structure, no separation: the picture does not make one up.
  EmbeddingSet mixed = blobs(240, 10, 4, 0.0);
  mixed.vectors = tsne(mixed.vectors).points.to(torch::kFloat32);
  EXPECT_LT(measure_separation(mixed).recall.at(1), 0.6);
}

TEST(Tsne, AFewOrEqualPointsAreFine) {
  EXPECT_TRUE(tsne(torch::eye(4)).points.isfinite().all().item<bool>());
  EXPECT_TRUE(tsne(torch::ones({50, 3})).points.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace redline::models::embedding
