// The separation metrics against scikit-learn's numbers (tests/fixtures/separation/make.py).
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/convnext/embedding/kmeans.h"
#include "models/convnext/embedding/mutual_information.h"
#include "models/convnext/embedding/separation.h"
#include "models/convnext/embedding/tsne.h"
#include "train/files/safetensors.h"

namespace redline {
namespace {

using models::embedding::EmbeddingSet;

const std::string kSeparation = std::string(REDLINE_FIXTURES) + "/separation";

std::vector<int64_t> numbers(const torch::Tensor& x) {
  return {x.const_data_ptr<int64_t>(), x.const_data_ptr<int64_t>() + x.numel()};
}

class SeparationFixture : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tensors_ = train::read_safetensors(kSeparation + "/embeddings.safetensors").tensors;
    std::ifstream file(kSeparation + "/facts.json");
    facts_ = nlohmann::json::parse(file).at(GetParam());
    set_ = {of("embeddings"), numbers(of("labels")), {}};
  }
  torch::Tensor of(const std::string& what) const { return tensors_.at(std::string(GetParam()) + "." + what); }

  std::map<std::string, torch::Tensor> tensors_;
  nlohmann::json facts_;
  EmbeddingSet set_;
};

TEST_P(SeparationFixture, EqualsScikitLearn) {
  const auto metrics = measure_separation(set_).metrics();
  int compared = 0;
  for (const auto& [name, value] : metrics) {
    if (name == "nmi") continue;
    const double expected = facts_.at(name);
    EXPECT_NEAR(value, expected, 1e-6 * std::abs(expected)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, 9);
}

TEST_P(SeparationFixture, OtherLabelsGiveOtherNumbers) {
  std::rotate(set_.labels.begin(), set_.labels.begin() + 7, set_.labels.end());
  const auto metrics = measure_separation(set_).metrics();
  EXPECT_GT(std::abs(metrics.at("silhouette") - facts_.at("silhouette").get<double>()), 0.01);
  EXPECT_LT(metrics.at("map_at_r"), facts_.at("map_at_r").get<double>() - 0.1);
}

TEST_P(SeparationFixture, NmiOfTheSameClustersIsEqual) {
  const std::vector<int64_t> clusters = numbers(of("clusters"));
  const double expected = facts_.at("nmi_of_sklearns_clusters");
  EXPECT_NEAR(models::embedding::normalized_mutual_information(set_.labels, clusters), expected, 1e-9);
  EXPECT_NEAR(models::embedding::normalized_mutual_information(clusters, set_.labels), expected, 1e-9);
}

// The best of twenty starts of scikit-learn's is what a few greedy starts of ours reach.
TEST_P(SeparationFixture, ClustersAreAsTight) {
  models::embedding::KMeansOptions options;
  options.clusters = of("clusters").max().item<int64_t>() + 1;
  options.restarts = 10;
  const auto found = models::embedding::kmeans(set_.vectors, options);
  EXPECT_LE(found.inertia, facts_.at("inertia").get<double>() * 1.002);
  EXPECT_GE(found.inertia, facts_.at("inertia").get<double>() * 0.98);
}

// The same quantity minimised with the same settings: scikit-learn approximates the repulsion, we sum it.
TEST_P(SeparationFixture, TsneGetsAsFar) {
  const double divergence = models::embedding::tsne(set_.vectors).divergence;
  EXPECT_LE(divergence, facts_.at("tsne_divergence").get<double>() * 1.03);
  EXPECT_GE(divergence, facts_.at("tsne_divergence").get<double>() * 0.8);
}

INSTANTIATE_TEST_SUITE_P(Cases, SeparationFixture, testing::Values("fixture", "hard"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace redline
