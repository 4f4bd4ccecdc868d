#include "models/convnext/embedding/separation.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace redline::models::embedding {
namespace {

EmbeddingSet random_set(int64_t n, int64_t d, int64_t classes, double apart, uint64_t seed = 1) {
  EmbeddingSet set;
  set.vectors = torch::empty({n, d});
  for (int64_t i = 0; i < n; ++i) {
    KeyedStream draw(seed, 0, static_cast<uint64_t>(i), 0);
    set.labels.push_back(draw.uniform_int(0, classes - 1));
    for (int64_t j = 0; j < d; ++j)
      set.vectors[i][j] = draw.normal() + apart * std::sin(static_cast<double>(set.labels.back() * 37 + j * 5));
  }
  return set;
}

// The definitions, pair by pair.
std::map<std::string, double> plain_metrics(const EmbeddingSet& set) {
  const int64_t n = set.size();
  const torch::Tensor x = set.vectors.to(torch::kFloat64);
  const auto label = [&](int64_t i) { return set.labels[static_cast<size_t>(i)]; };
  const auto distance = [&](int64_t i, int64_t j) { return (x[i] - x[j]).norm().item<double>(); };
  double silhouette = 0, intra = 0, inter = 0, pairs_in = 0, pairs_out = 0, hits = 0, queries = 0;
  for (int64_t i = 0; i < n; ++i) {
    std::map<int64_t, double> sum, count;
    double best = INFINITY;
    bool right = false;
    for (int64_t j = 0; j < n; ++j) {
      if (j == i) continue;
      const double d = distance(i, j);
      sum[label(j)] += d, ++count[label(j)];
      if (d < best) best = d, right = label(j) == label(i);
      (label(j) == label(i) ? intra : inter) += d;
      ++(label(j) == label(i) ? pairs_in : pairs_out);
    }
    if (count[label(i)] == 0) continue;
    ++queries;
    hits += right ? 1 : 0;
    const double a = sum[label(i)] / count[label(i)];
    double b = INFINITY;
    for (const auto& [c, s] : sum)
      if (c != label(i)) b = std::min(b, s / count[c]);
    silhouette += (b - a) / std::max(a, b);
  }
  return {{"silhouette", silhouette / static_cast<double>(n)},
          {"intra_inter_ratio", intra / pairs_in / (inter / pairs_out)},
          {"recall_at_1", hits / queries}};
}

TEST(Separation, EqualsThePlainDefinitions) {
  const EmbeddingSet set = random_set(140, 7, 5, 1.0);
  const auto metrics = measure_separation(set).metrics();
  const auto plain = plain_metrics(set);
  for (const auto& [name, value] : plain) EXPECT_NEAR(metrics.at(name), value, 1e-9) << name;
}

TEST(Separation, GrowsWithTheDistanceOfClasses) {
  const auto near = measure_separation(random_set(400, 16, 6, 0.0)).metrics(),
             far = measure_separation(random_set(400, 16, 6, 6.0)).metrics();
  for (const char* name : {"silhouette", "calinski_harabasz", "map_at_r", "nmi", "recall_at_1"})
    EXPECT_GT(far.at(name), near.at(name) + 0.3) << name;
  for (const char* name : {"davies_bouldin", "intra_inter_ratio"}) EXPECT_LT(far.at(name), near.at(name) - 0.3) << name;
  EXPECT_LT(near.at("recall_at_1"), 0.35);  // chance is about 1/6
  EXPECT_GT(far.at("recall_at_1"), 0.99);
}

TEST(Separation, ThreadsAndOrderOfRowsChangeNothing) {
  const EmbeddingSet set = random_set(700, 9, 4, 1.0);
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const auto one = measure_separation(set).metrics();
  at::set_num_threads(2);
  const auto two = measure_separation(set).metrics();
  at::set_num_threads(before);
  EXPECT_EQ(one, two);
  EmbeddingSet turned = set;
  turned.vectors = set.vectors.flip(0).contiguous();
  std::reverse(turned.labels.begin(), turned.labels.end());
  for (const auto& [name, value] : measure_separation(turned).metrics()) {
    if (name != "nmi") {  // k-means draws rows by their place
      EXPECT_NEAR(value, one.at(name), 1e-9 * std::abs(value)) << name;
    }
  }
}

// Everything in one point is the worst an embedding can do, and must not look good.
TEST(Separation, ACollapsedEmbeddingSeparatesNothing) {
  EmbeddingSet set = random_set(300, 8, 10, 1.0);
  set.vectors = torch::ones({300, 8});
  const auto metrics = measure_separation(set).metrics();
  EXPECT_LT(metrics.at("recall_at_1"), 0.3);
  EXPECT_LT(metrics.at("map_at_r"), 0.3);
  EXPECT_EQ(metrics.at("silhouette"), 0.0);
  EXPECT_EQ(metrics.at("davies_bouldin"), 0.0);
  EXPECT_EQ(metrics.count("intra_inter_ratio"), 0u);
}

std::string notes_of(const Separation& found) {
  std::string text;
  for (const std::string& note : found.notes) text += note + "\n";
  return text;
}

TEST(Separation, NotFiniteIsSaidWithTheRow) {
  EmbeddingSet set = random_set(50, 4, 3, 1.0);
  set.vectors[17][2] = NAN;
  set.vectors[40][0] = INFINITY;
  for (int64_t i = 0; i < 50; ++i) set.ids.push_back(1000 + i);
  const Separation found = measure_separation(set);
  EXPECT_TRUE(found.metrics().empty());
  EXPECT_NE(notes_of(found).find("2 of 50 embeddings hold values that are not finite (the first: row 17, sample 1017)"),
            std::string::npos)
      << notes_of(found);
}

TEST(Separation, OneClassHasNeighboursButNothingToSeparate) {
  EmbeddingSet set = random_set(20, 4, 1, 1.0);
  const Separation found = measure_separation(set);
  EXPECT_FALSE(found.silhouette || found.nmi || found.davies_bouldin);
  EXPECT_EQ(found.recall.at(1), 1.0);
  EXPECT_NE(notes_of(found).find("need at least 2 classes"), std::string::npos);
}

TEST(Separation, ClassesOfOneAreLeftOutAsQueries) {
  EmbeddingSet set = random_set(30, 4, 2, 30.0);
  set.labels[4] = 77;
  set.vectors[4].fill_(-500.0);  // nobody's neighbour
  const Separation found = measure_separation(set);
  EXPECT_NE(notes_of(found).find("1 of 30 embeddings are alone in their class"), std::string::npos) << notes_of(found);
  EXPECT_EQ(found.recall.at(1), 1.0);
  EXPECT_TRUE(found.silhouette && std::isfinite(*found.silhouette));
  // Every class of one: nothing but words.
  for (size_t i = 0; i < set.labels.size(); ++i) set.labels[i] = static_cast<int64_t>(i);
  const Separation alone = measure_separation(set);
  EXPECT_TRUE(alone.metrics().empty());
  EXPECT_NE(notes_of(alone).find("Every class has one embedding"), std::string::npos);
}

TEST(Separation, KLargerThanTheSetIsSaidAndTheRestIsMeasured) {
  const Separation found = measure_separation(random_set(6, 3, 2, 3.0));
  EXPECT_EQ(found.recall.count(8), 0u);
  EXPECT_EQ(found.recall.count(4), 1u);
  EXPECT_NE(notes_of(found).find("recall@8 needs more than 8 embeddings; there are 6"), std::string::npos);
}

TEST(Separation, TooFewIsSaid) {
  EXPECT_NE(notes_of(measure_separation({})).find("There are 0 embeddings"), std::string::npos);
  EXPECT_NE(notes_of(measure_separation(random_set(1, 3, 1, 1.0))).find("needs at least 2"), std::string::npos);
}

TEST(Separation, EveryMetricHasAName) {
  const auto metrics = measure_separation(random_set(60, 4, 3, 1.0)).metrics();
  std::vector<std::string> names, found;
  for (const auto& metric : separation_metrics({1, 2, 4, 8})) names.push_back(metric.name);
  for (const auto& [name, value] : metrics) found.push_back(name);
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, found);
}

}  // namespace
}  // namespace redline::models::embedding
