#include "models/convnext/embedding/kmeans.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/philox.h"
#include "models/convnext/embedding/mutual_information.h"

namespace redline::models::embedding {
namespace {

// Round clouds about corners that lie 10 apart, and which cloud a row is of.
torch::Tensor clouds(int64_t n, int64_t count, std::vector<int64_t>& of, double offset = 0.0) {
  torch::Tensor points = torch::empty({n, 6});
  of.clear();
  for (int64_t i = 0; i < n; ++i) {
    KeyedStream draw(3, 0, static_cast<uint64_t>(i), 0);
    of.push_back(draw.uniform_int(0, count - 1));
    for (int64_t j = 0; j < 6; ++j)
      points[i][j] = offset + draw.normal() * 0.5 + (of.back() == j ? 10.0 : of.back() == j + 6 ? -10.0 : 0.0);
  }
  return points;
}

KMeansOptions options_of(int64_t clusters, int64_t restarts = 3) {
  KMeansOptions options;
  options.clusters = clusters;
  options.restarts = restarts;
  return options;
}

TEST(KMeans, FindsCloudsAlsoFarFromTheOrigin) {
  for (const double offset : {0.0, 5000.0}) {
    std::vector<int64_t> of;
    const torch::Tensor points = clouds(900, 12, of, offset);
    const Clustering found = kmeans(points, options_of(12));
    EXPECT_NEAR(normalized_mutual_information(of, found.assignment), 1.0, 1e-12) << offset;
    // Of its clouds' means, in double precision.
    double inertia = 0.0;
    for (int64_t c = 0; c < 12; ++c) {
      std::vector<int64_t> rows;
      for (size_t i = 0; i < of.size(); ++i)
        if (of[i] == c) rows.push_back(static_cast<int64_t>(i));
      const torch::Tensor own = points.index_select(0, torch::tensor(rows)).to(torch::kFloat64);
      inertia += (own - own.mean(0)).square().sum().item<double>();
    }
    EXPECT_NEAR(found.inertia, inertia, 1e-3 * inertia);
  }
}

TEST(KMeans, FewerClustersThanCloudsLeaveMoreSpread) {
  std::vector<int64_t> of;
  const torch::Tensor points = clouds(600, 6, of);
  EXPECT_GT(kmeans(points, options_of(5)).inertia, 2.0 * kmeans(points, options_of(6)).inertia);
}

TEST(KMeans, ThreadsChangeNothingTheSeedMay) {
  std::vector<int64_t> of;
  const torch::Tensor points = clouds(1500, 12, of) + torch::arange(1500 * 6).view({1500, 6}).sin() * 6;
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Clustering one = kmeans(points, options_of(9, 1));
  at::set_num_threads(2);
  const Clustering two = kmeans(points, options_of(9, 1));
  at::set_num_threads(before);
  EXPECT_EQ(one.assignment, two.assignment);
  EXPECT_TRUE(torch::equal(one.centres, two.centres));
  EXPECT_EQ(one.inertia, two.inertia);
  KMeansOptions other = options_of(9, 1);
  other.seed = 4;
  EXPECT_NE(kmeans(points, other).assignment, one.assignment);
}

TEST(KMeans, FewerPointsThanClustersIsSaidAndRepeatedPointsAreFine) {
  EXPECT_THROW(kmeans(torch::zeros({3, 2}), options_of(4)), DataError);
  // Three places, five clusters: nobody is left out and nothing is divided by nothing.
  const torch::Tensor points = torch::arange(30).remainder(3).view({30, 1}).to(torch::kFloat32);
  const Clustering found = kmeans(points, options_of(5));
  EXPECT_EQ(found.inertia, 0.0);
  EXPECT_TRUE(found.centres.isfinite().all().item<bool>());
}

TEST(MutualInformation, KnownValues) {
  using L = std::vector<int64_t>;
  EXPECT_EQ(normalized_mutual_information(L{0, 0, 0}, L{5, 5, 5}), 1.0);
  EXPECT_EQ(normalized_mutual_information(L{0, 0, 1, 1}, L{0, 1, 0, 1}), 0.0);
  EXPECT_DOUBLE_EQ(normalized_mutual_information(L{0, 0, 1, 1}, L{7, 7, -2, -2}), 1.0);
  // H(a) = ln 2, H(b) = 1.5 ln 2, I = ln 2: 1 / 1.25.
  EXPECT_NEAR(normalized_mutual_information(L{0, 0, 1, 1}, L{0, 0, 1, 2}), 0.8, 1e-12);
}

}  // namespace
}  // namespace redline::models::embedding
