// residual_norm, bias_activation, linear_cross_entropy and packed_embedding against their plain twins.
#include "models/layers/bias_activation.h"
#include "models/layers/layer_test_tools.h"
#include "models/layers/linear_cross_entropy.h"
#include "models/layers/packed_embedding.h"
#include "models/layers/residual_norm.h"

namespace redline::models {
namespace {

using testing::expect_same_layer;
using testing::ragged_rows;
using testing::some_dropout;
using testing::wave;

class FusedRows : public ::testing::TestWithParam<torch::ScalarType> {
 protected:
  double tolerance() const { return GetParam() == torch::kFloat64 ? 1e-12 : 4e-6; }
};

TEST_P(FusedRows, ResidualNorm) {
  const Rows rows = ragged_rows({40, 1, 23});
  for (int64_t width : {8, 20, 256})
    for (double p : {0.0, 0.4})
      for (int used : {0, 1, 2}) {  // both results, only the sum, only the norm
        const auto pick = [used](const ResidualNorm& r) {
          if (used == 1) return std::vector{r.residual};
          if (used == 2) return std::vector{r.normed};
          return std::vector{r.residual, r.normed};
        };
        const DropoutDraw dropout = some_dropout(p);
        const std::vector<torch::Tensor> inputs = {wave({64, width}, 0.1, GetParam()),
                                                   wave({64, width}, 0.9, GetParam()), wave({width}, 0.3, GetParam()),
                                                   wave({width}, 2.0, GetParam()), wave({width}, 3.0, GetParam())};
        if (used == 1) {  // weight and shift get no gradient from the plain path; compare values and the others
          const ResidualNorm a = residual_norm(inputs[0], inputs[1], inputs[2], rows, dropout, {inputs[3], inputs[4]});
          const ResidualNorm b =
              residual_norm_plain(inputs[0], inputs[1], inputs[2], rows, dropout, {inputs[3], inputs[4]});
          EXPECT_LE(testing::largest_difference(a.residual, b.residual), tolerance());
          continue;
        }
        expect_same_layer(
            [&](const auto& x) {
              return pick(residual_norm(x[0], x[1], x[2], rows, dropout, {x[3], x[4]}));
            },
            [&](const auto& x) {
              return pick(residual_norm_plain(x[0], x[1], x[2], rows, dropout, {x[3], x[4]}));
            },
            inputs, used == 0 || GetParam() == torch::kFloat64 ? tolerance() : 2e-5);
      }
}

TEST_P(FusedRows, ResidualNormWithoutUseOfTheNormPassesTheGradientThrough) {
  const Rows rows = ragged_rows({3});
  torch::Tensor x = wave({3, 8}, 0.1, GetParam()).requires_grad_(true),
                h = wave({3, 8}, 0.2, GetParam()).requires_grad_(true);
  torch::Tensor bias = wave({8}, 0.3, GetParam()).requires_grad_(true);
  const torch::Tensor ones = torch::ones({8}, GetParam());
  residual_norm(x, h, bias, rows, {}, {ones, ones}).residual.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), torch::ones_like(x)));
  EXPECT_TRUE(torch::equal(h.grad(), torch::ones_like(x)));
  EXPECT_TRUE(torch::allclose(bias.grad(), torch::full_like(bias, 3.0)));
}

TEST_P(FusedRows, BiasActivation) {
  const Rows rows = ragged_rows({40, 1, 23});
  for (Activation activation : {Activation::Relu, Activation::Gelu})
    for (int64_t width : {3, 8, 100})
      for (double p : {0.0, 0.3}) {
        const DropoutDraw dropout = some_dropout(p);
        const torch::Tensor u = wave({64, width}, 0.1, GetParam()) * 3.0;
        expect_same_layer(
            [&](const auto& x) { return std::vector{bias_activation(x[0], x[1], activation, rows, dropout)}; },
            [&](const auto& x) { return std::vector{bias_activation_plain(x[0], x[1], activation, rows, dropout)}; },
            {u, wave({width}, 0.5, GetParam())}, tolerance());
      }
}

TEST(BiasActivation, GeluIsAccurateOverTheWholeLine) {
  const torch::Tensor u = torch::linspace(-12.0, 12.0, 4801, torch::kFloat64);
  const torch::Tensor out = bias_activation(u.to(torch::kFloat32).unsqueeze(0), torch::zeros({4801}), Activation::Gelu,
                                            testing::ragged_rows({1}), {});
  EXPECT_LE((out[0].to(torch::kFloat64) - at::gelu(u)).abs().max().item<double>(), 2e-6);
}

TEST_P(FusedRows, LinearCrossEntropyWholeAndInBlocks) {
  const torch::Tensor hidden = wave({50, 12}, 0.1, GetParam());
  for (int64_t vocabulary : {2, 37, 64}) {
    const torch::Tensor target = torch::arange(50) * 7 % vocabulary;
    for (int64_t budget : {kLogitsBudgetBytes, int64_t{64 * 8 * 9}})
      expect_same_layer([&](const auto& x) { return std::vector{linear_cross_entropy(x[0], x[1], target, budget)}; },
                        [&](const auto& x) { return std::vector{linear_cross_entropy_plain(x[0], x[1], target)}; },
                        {hidden, wave({vocabulary, 12}, 0.6, GetParam())}, tolerance());
  }
}

TEST_P(FusedRows, LinearCrossEntropyStandsLargeLogits) {
  const torch::Tensor hidden = torch::full({2, 1}, 1.0, GetParam());
  const torch::Tensor weight = torch::tensor({1000.0, -1000.0}, GetParam()).unsqueeze(1);
  const torch::Tensor nll = linear_cross_entropy(hidden, weight, torch::tensor({0, 1}));
  EXPECT_NEAR(nll[0].item<double>(), 0.0, 1e-6);
  EXPECT_NEAR(nll[1].item<double>(), 2000.0, 1e-3);
}

TEST_P(FusedRows, PackedEmbedding) {
  const Rows rows = ragged_rows({9, 1, 4});
  const torch::Tensor tokens = torch::arange(14) * 5 % 11;
  for (int64_t width : {6, 72})
    for (double p : {0.0, 0.5}) {
      const DropoutDraw dropout = some_dropout(p);
      const auto inputs = [&](const std::vector<torch::Tensor>& x) {
        return EmbeddingInputs{x[0], tokens, x[1], x[2], 1.7};
      };
      expect_same_layer(
          [&](const auto& x) { return std::vector{packed_embedding(inputs(x), rows, dropout)}; },
          [&](const auto& x) { return std::vector{packed_embedding_plain(inputs(x), rows, dropout)}; },
          {wave({11, width}, 0.1, GetParam()), wave({10, width}, 0.4, GetParam()), wave({3, width}, 0.8, GetParam())},
          tolerance());
    }
}

TEST(PackedEmbedding, WithoutPerSequencePartAndWithFixedPositions) {
  const Rows rows = ragged_rows({2, 1});
  torch::Tensor table = wave({4, 8}, 0.1, torch::kFloat32).requires_grad_(true);
  const torch::Tensor positions = sinusoid_table(5, 8);
  const torch::Tensor out = packed_embedding({table, torch::tensor({3, 1, 3}), positions, {}, 2.0}, rows, {});
  EXPECT_TRUE(torch::allclose(out[2], table[3] * 2.0 + positions[0]));
  EXPECT_TRUE(torch::allclose(out[1], table[1] * 2.0 + positions[1]));
  out.sum().backward();
  EXPECT_TRUE(torch::allclose(table.grad()[3], torch::full({8}, 4.0)));
  EXPECT_TRUE(torch::allclose(table.grad()[0], torch::zeros({8})));
}

TEST(Sinusoid, MatchesTheFormula) {
  const torch::Tensor table = sinusoid_table(4, 6);
  EXPECT_NEAR(table[3][0].item<double>(), std::sin(3.0), 1e-6);
  EXPECT_NEAR(table[3][1].item<double>(), std::cos(3.0), 1e-6);
  EXPECT_NEAR(table[2][4].item<double>(), std::sin(2.0 * std::pow(10000.0, -4.0 / 6.0)), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Types, FusedRows, ::testing::Values(torch::kFloat32, torch::kFloat64));

}  // namespace
}  // namespace redline::models
