// Layers of packed rows under bf16-mixed against themselves in fp32: values and gradients, by the units and plainly.
// Odd widths, single rows, dropout; what backward keeps is rounded too.
#include "device/autocast.h"
#include "models/layers/bias_activation.h"
#include "models/layers/layer_test_tools.h"
#include "models/layers/linear_cross_entropy.h"
#include "models/layers/packed_attention.h"
#include "models/layers/panel_gemm_bf16.h"
#include "models/layers/residual_norm.h"
#include "models/layers/row_linear.h"

namespace redline::models::bf16_layers_test {
namespace {

using testing::expect_same_layer;
using testing::Layer;
using testing::ragged_rows;
using testing::some_dropout;
using testing::wave;

constexpr double kTolerance = 2e-2;  // of the largest value; a number has 8 bits here

class Bf16Layers : public ::testing::TestWithParam<bf16_panels::Way> {
 protected:
  void SetUp() override {
    if (GetParam() == bf16_panels::Way::kAsTheMachine && !bf16_panels::units())
      GTEST_SKIP() << "this processor has no AVX512-BF16 units; the plain way is tested beside";
    bf16_panels::use(GetParam());
  }
  void TearDown() override { bf16_panels::use(bf16_panels::Way::kAsTheMachine); }
};

Layer in_low(const Layer& layer) {
  return [layer](const std::vector<torch::Tensor>& inputs) {
    const device::AutocastScope low(device::DeviceKind::Cpu, Precision::Bf16Mixed);
    return layer(inputs);
  };
}

torch::Tensor some(std::vector<int64_t> shape, double phase) { return wave(std::move(shape), phase, torch::kFloat32); }

TEST_P(Bf16Layers, RowLinear) {
  for (const int64_t rows : {1, 19, 333})
    for (const bool biased : {true, false}) {
      const Layer layer = [&](const auto& in) {
        return std::vector{biased ? row_linear(in[0], in[1], in[2]) : row_linear(in[0], in[1])};
      };
      expect_same_layer(in_low(layer), layer, {some({rows, 25}, 0.2), some({41, 25}, 0.5), some({41}, 0.7)},
                        kTolerance);
    }
  const device::AutocastScope low(device::DeviceKind::Cpu, Precision::Bf16Mixed);
  EXPECT_EQ(row_linear(some({3, 25}, 0.2), some({41, 25}, 0.5)).scalar_type(), torch::kFloat32);
  EXPECT_EQ(row_linear(torch::zeros({0, 25}), some({41, 25}, 0.5)).size(0), 0);
}

TEST_P(Bf16Layers, Attention) {
  const Rows rows = ragged_rows({70, 1, 23});
  for (const bool causal : {false, true})
    for (const double p : {0.0, 0.3}) {
      const AttentionOptions options{2, causal, some_dropout(p)};
      const Layer layer = [&](const auto& in) { return std::vector{packed_self_attention(in[0], rows, options)}; };
      expect_same_layer(in_low(layer), layer, {some({94, 3 * 48}, 0.3)}, kTolerance);
    }
}

TEST_P(Bf16Layers, BiasActivation) {
  const Rows rows = ragged_rows({40, 1, 23});
  const DropoutDraw dropout = some_dropout(0.3);
  for (const Activation activation : {Activation::Relu, Activation::Gelu}) {
    const Layer layer = [&](const auto& in) {
      return std::vector{bias_activation(in[0], in[1], activation, rows, dropout)};
    };
    // Away from ReLU's corner, where rounding the sum may change its side.
    const torch::Tensor u = some({64, 37}, 0.1);
    expect_same_layer(in_low(layer), layer, {u.sign() * (u.abs() + 0.5), some({37}, 0.5) * 0.1}, kTolerance);
  }
}

// Also where the rows' mean is far larger than what lies around it.
TEST_P(Bf16Layers, ResidualNorm) {
  const Rows rows = ragged_rows({40, 1, 23});
  for (const double mean : {0.0, 300.0}) {
    const Layer layer = [&](const auto& in) {
      const ResidualNorm out = residual_norm(in[0] + mean, in[1], in[2], rows, some_dropout(0.2), {in[3], in[4]});
      return std::vector{out.residual - mean, out.normed};
    };
    expect_same_layer(in_low(layer), layer,
                      {some({64, 20}, 0.1), some({64, 20}, 0.9), some({20}, 0.3), some({20}, 2.0), some({20}, 3.0)},
                      kTolerance);
  }
}

TEST_P(Bf16Layers, LinearCrossEntropy) {
  const torch::Tensor target = torch::arange(333, torch::kInt64) % 41;
  for (const int64_t budget_bytes : {kLogitsBudgetBytes, int64_t{100 * 41 * 4}}) {  // kept, and made again in blocks
    const Layer layer = [&](const auto& in) {
      return std::vector{linear_cross_entropy(in[0], in[1], target, budget_bytes)};
    };
    expect_same_layer(in_low(layer), layer, {some({333, 25}, 0.2), some({41, 25}, 0.5)}, kTolerance);
  }
}

// The control: the low precision is there, and the tolerance sees an error of a tenth.
TEST_P(Bf16Layers, AreNotFp32) {
  const torch::Tensor x = some({64, 24}, 0.2), weight = some({40, 24}, 0.5), plain = row_linear(x, weight);
  const device::AutocastScope low(device::DeviceKind::Cpu, Precision::Bf16Mixed);
  EXPECT_GT(testing::largest_difference(row_linear(x, weight), plain), 1e-4);
  EXPECT_GT(testing::largest_difference(row_linear(x * 1.1, weight), plain), kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Ways, Bf16Layers, ::testing::Values(bf16_panels::Way::kAsTheMachine, bf16_panels::Way::kPlain),
                         [](const auto& way) {
                           return way.param == bf16_panels::Way::kPlain ? std::string("Plain") : std::string("Units");
                         });

}  // namespace
}  // namespace redline::models::bf16_layers_test
