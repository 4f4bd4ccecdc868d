// Products of bfloat16 in panels against operands rounded by LibTorch and multiplied in double: every kind of rest in
// rows, columns and depth, nothing beyond the result touched, by the units (where the processor has them) and plainly.
#include "models/layers/panel_gemm_bf16.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>

#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/layer_test_tools.h"

namespace redline::models::bf16_gemm_test {
namespace {

using bf16_panels::Bf16;
using testing::wave;

constexpr float kSentinel = 12345.0f;

torch::Tensor rounded(const torch::Tensor& x) { return x.to(torch::kBFloat16).to(torch::kFloat64); }
Bf16* words(torch::Tensor& x) { return reinterpret_cast<Bf16*>(x.mutable_data_ptr<at::BFloat16>()); }
const Bf16* words(const torch::Tensor& x) { return reinterpret_cast<const Bf16*>(x.const_data_ptr<at::BFloat16>()); }

// NaN where nothing was written: a product that reads it is found out.
torch::Tensor unwritten(int64_t count) {
  return torch::full({count}, std::numeric_limits<float>::quiet_NaN()).to(torch::kBFloat16);
}

torch::Tensor in_panels(const torch::Tensor& x, bool transposed = false, bool from_rounded = false) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const int64_t depth = transposed ? columns : rows, width = transposed ? rows : columns;
  torch::Tensor out = unwritten(bf16_panels::size(depth, width));
  const torch::Tensor low = x.to(torch::kBFloat16);
  const int64_t count = bf16_panels::count(width), half = count / 2, pairs = bf16_panels::pairs(depth);
  for (const auto& [first, last] : {std::pair{int64_t{0}, half}, {half, count}})  // in two goes, as threads would
    if (transposed)
      bf16_panels::pack_transposed(x.const_data_ptr<float>(), rows, columns, columns, first, last, words(out));
    else if (from_rounded)
      bf16_panels::pack(words(low), rows, columns, columns, first, last, pairs, words(out));
    else
      bf16_panels::pack(x.const_data_ptr<float>(), rows, columns, columns, first, last, pairs, words(out));
  return out;
}

// c [rows, columns] inside a larger matrix of sentinels.
struct Result {
  Result(int64_t rows, int64_t columns, float start)
      : whole(torch::full({rows + 2, columns + 5}, kSentinel)), part(whole.narrow(0, 1, rows).narrow(1, 2, columns)) {
    part.fill_(start);
  }
  float* data() { return part.mutable_data_ptr<float>(); }
  int64_t ld() const { return whole.size(1); }
  bool kept_its_bounds() const {
    torch::Tensor copy = whole.clone();
    copy.narrow(0, 1, part.size(0)).narrow(1, 2, part.size(1)).fill_(kSentinel);
    return copy.eq(kSentinel).all().item<bool>();
  }
  torch::Tensor whole, part;
};

void expect_close(const torch::Tensor& found, const torch::Tensor& expected, int64_t depth) {
  if (expected.numel() == 0) return;
  EXPECT_LE((found.to(torch::kFloat64) - expected).abs().max().item<double>(), 3e-7 * static_cast<double>(depth + 4));
}

class PanelGemmBf16 : public ::testing::TestWithParam<bf16_panels::Way> {
 protected:
  void SetUp() override {
    if (GetParam() == bf16_panels::Way::kAsTheMachine && !bf16_panels::units())
      GTEST_SKIP() << "this processor has no AVX512-BF16 units; the plain way is tested beside";
    bf16_panels::use(GetParam());
  }
  void TearDown() override { bf16_panels::use(bf16_panels::Way::kAsTheMachine); }
};

const std::vector<std::array<int64_t, 3>> kShapes = {
    {1, 1, 1},    {8, 32, 32},   {7, 33, 31}, {13, 50, 37}, {6, 16, 64}, {17, 48, 20}, {70, 96, 33},
    {15, 31, 95}, {128, 64, 96}, {3, 200, 5}, {0, 40, 8},   {5, 0, 8},   {9, 70, 0}};

TEST_P(PanelGemmBf16, EqualsTheProductOfRoundedOperands) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool add : {false, true}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << (add ? ", added" : ""));
      const torch::Tensor a = wave({m, k}, 0.1, torch::kFloat32), b = wave({k, n}, 0.7, torch::kFloat32);
      const torch::Tensor right = in_panels(b);
      const torch::Tensor across = in_panels(b.t().contiguous(), /*transposed=*/true);
      EXPECT_TRUE(torch::equal(across.view(torch::kInt16), right.view(torch::kInt16)));
      EXPECT_TRUE(
          torch::equal(in_panels(b, false, /*from_rounded=*/true).view(torch::kInt16), right.view(torch::kInt16)));
      torch::Tensor left = unwritten(m * bf16_panels::line(k));
      bf16_panels::round_rows(a.const_data_ptr<float>(), m, k, k, words(left));
      Result c(m, n, 0.5f);
      bf16_panels::multiply(m, k, {words(left), bf16_panels::line(k)}, {words(right), bf16_panels::pairs(k), n}, add,
                            c.data(), c.ld());
      expect_close(c.part, torch::mm(rounded(a), rounded(b)) + (add ? 0.5 : 0.0), k);
      EXPECT_TRUE(c.kept_its_bounds());
    }
}

TEST_P(PanelGemmBf16, EqualsTheTransposedProduct) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool add : {false, true}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << (add ? ", added" : ""));
      const torch::Tensor a = wave({k, m}, 0.1, torch::kFloat32), b = wave({k, n}, 0.7, torch::kFloat32);
      const torch::Tensor left = in_panels(a), right = in_panels(b);
      Result c(m, n, 0.5f);
      const int64_t pairs = bf16_panels::pairs(k), groups = bf16_panels::count(m), half = groups / 2;
      const bf16_panels::TransposedPlaces places{pairs, {words(left), pairs, m}, {words(right), pairs, n}};
      const int64_t last = bf16_panels::count(n);
      bf16_panels::multiply_transposed(places, add, c.data(), c.ld(), 0, half, 0, last);
      bf16_panels::multiply_transposed(places, add, c.data(), c.ld(), half, groups, 0, last);
      expect_close(c.part, torch::mm(rounded(a).t(), rounded(b)) + (add ? 0.5 : 0.0), k);
      EXPECT_TRUE(c.kept_its_bounds());
    }
}

// To the nearest, ties to even, as LibTorch does; infinities stay, and what is no number stays none.
TEST_P(PanelGemmBf16, RoundsAsLibTorch) {
  torch::Tensor x = wave({3, 37}, 0.3, torch::kFloat32) * 1e3;
  x[0][1] = std::numeric_limits<float>::infinity();
  x[1][2] = -std::numeric_limits<float>::infinity();
  x[2][3] = 1.00390625f;  // half way between two: to the even one, 1
  x[2][4] = 1.01171875f;  // half way: up, to 1.015625
  torch::Tensor low = unwritten(3 * 38);
  bf16_panels::round_rows(x.const_data_ptr<float>(), 3, 37, 37, words(low));
  EXPECT_TRUE(torch::equal(low.view({3, 38}).narrow(1, 0, 37), x.to(torch::kBFloat16)));
  EXPECT_EQ(low.view({3, 38}).select(1, 37).abs().sum().item<float>(), 0.0f);  // the filler of an odd row
  EXPECT_EQ(low.view({3, 38})[2][3].item<float>(), 1.0f);
  EXPECT_EQ(low.view({3, 38})[2][4].item<float>(), 1.015625f);
  torch::Tensor nothing = torch::full({1, 40}, std::numeric_limits<float>::quiet_NaN());
  torch::Tensor out = torch::zeros({40}, torch::kBFloat16);
  bf16_panels::round_rows(nothing.const_data_ptr<float>(), 1, 40, 40, words(out));
  EXPECT_TRUE(out.isnan().all().item<bool>());
  torch::Tensor wide = torch::empty({3 * 38});
  bf16_panels::widen(words(low), 3 * 38, wide.mutable_data_ptr<float>());
  EXPECT_TRUE(torch::equal(wide, low.to(torch::kFloat32)));
}

// gemm.h's products in bfloat16 are these; odd rows, several chunks of depth, a long row distance.
TEST_P(PanelGemmBf16, TheTilesOfTheLayersUseThem) {
  const int64_t k = 1301, m = 45, n = 70;
  const torch::Tensor a = wave({k, m + 3}, 0.1, torch::kFloat32), b = wave({k, n}, 0.7, torch::kFloat32);
  const torch::Tensor expected = torch::mm(rounded(a.narrow(1, 0, m)).t(), rounded(b));
  Result c(m, n, 0.5f);
  TileGemm(torch::kBFloat16)
      .tn(m, n, k, a.const_data_ptr<float>(), m + 3, b.const_data_ptr<float>(), n, 1.0f, c.data(), c.ld());
  expect_close(c.part, expected + 0.5, k);
  EXPECT_TRUE(c.kept_its_bounds());
  const torch::Tensor left = a.narrow(1, 0, m).contiguous();
  expect_close(parallel_tn(left, b, torch::kBFloat16), expected, k);
  expect_close(bf16_parallel_tn(left, b.to(torch::kBFloat16)), expected, k);
  EXPECT_EQ(parallel_tn(left.narrow(0, 0, 0), b.narrow(0, 0, 0), torch::kBFloat16).abs().sum().item<float>(), 0.0f);
  const torch::Tensor weight = wave({n, m}, 0.2, torch::kFloat32), other = weight.t().contiguous();
  for (const bool transposed : {true, false}) {
    Result y(9, n, 2.0f);
    const GemmOperand operand(transposed ? weight : other, torch::kBFloat16, transposed ? GemmUse::kNt : GemmUse::kNn);
    const auto product = transposed ? &TileGemm::nt : &TileGemm::nn;
    (TileGemm(torch::kBFloat16).*product)(9, n, m, a.const_data_ptr<float>(), m + 3, operand, 1.0f, y.data(), y.ld());
    expect_close(y.part, torch::mm(rounded(a.narrow(0, 0, 9).narrow(1, 0, m)), rounded(other)) + 2.0, m);
    EXPECT_TRUE(y.kept_its_bounds());
  }
}

TEST_P(PanelGemmBf16, ProductsOfActivations) {
  for (const auto& [m, n, k] : kShapes) {
    if (m == 0 || n == 0 || k == 0) continue;
    SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k);
    const torch::Tensor a = wave({m, k + 2}, 0.1, torch::kFloat32), b = wave({n, k + 4}, 0.7, torch::kFloat32);
    const torch::Tensor across = b.narrow(1, 0, k).t().contiguous();
    const torch::Tensor expected = torch::mm(rounded(a.narrow(1, 0, k)), rounded(across)) + 0.5;
    Result straight(m, n, 0.5f), turned(m, n, 0.5f);
    bf16_nn(m, n, k, a.const_data_ptr<float>(), k + 2, across.const_data_ptr<float>(), n, 1.0f, straight.data(),
            straight.ld());
    bf16_nt(m, n, k, a.const_data_ptr<float>(), k + 2, b.const_data_ptr<float>(), k + 4, 1.0f, turned.data(),
            turned.ld());
    for (const Result* c : {&straight, &turned}) {
      expect_close(c->part, expected, k);
      EXPECT_TRUE(c->kept_its_bounds());
    }
  }
}

// The control: what was not rounded is not within the tolerance, so rounding is what is tested.
TEST_P(PanelGemmBf16, TheProductOfTheFloatsIsFar) {
  const torch::Tensor a = wave({9, 40}, 0.1, torch::kFloat32), b = wave({40, 33}, 0.7, torch::kFloat32);
  const torch::Tensor right = in_panels(b);
  torch::Tensor left = unwritten(9 * 40);
  bf16_panels::round_rows(a.const_data_ptr<float>(), 9, 40, 40, words(left));
  Result c(9, 33, 0.0f);
  bf16_panels::multiply(9, 40, {words(left), 40}, {words(right), 20, 33}, false, c.data(), c.ld());
  EXPECT_GT((c.part - torch::mm(a, b)).abs().max().item<float>(), 1e-3f);
}

INSTANTIATE_TEST_SUITE_P(Ways, PanelGemmBf16,
                         ::testing::Values(bf16_panels::Way::kAsTheMachine, bf16_panels::Way::kPlain),
                         [](const auto& way) {
                           return way.param == bf16_panels::Way::kPlain ? std::string("Plain") : std::string("Units");
                         });

}  // namespace
}  // namespace redline::models::bf16_gemm_test
