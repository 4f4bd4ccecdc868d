// Products in panels against LibTorch's in double: every kind of rest in rows, columns and depth, nothing beyond the
// result touched, and both vector widths.
#include "models/layers/panel_gemm.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>

#include "models/layers/layer_test_tools.h"

namespace redline::models {
namespace {

using testing::wave;

constexpr float kSentinel = 12345.0f;

torch::Tensor in_panels(const torch::Tensor& x, bool transposed = false) {
  const int64_t rows = x.size(0), columns = x.size(1);
  const int64_t depth = transposed ? columns : rows, width = transposed ? rows : columns;
  // NaN where nothing was written: a product that reads it is found out.
  torch::Tensor out = torch::full({panels::floats(depth, width)}, std::numeric_limits<float>::quiet_NaN());
  float* to = out.mutable_data_ptr<float>();
  const int64_t count = panels::count(width), half = count / 2;  // in two goes, as threads would
  for (const auto& [first, last] : {std::pair{int64_t{0}, half}, {half, count}})
    if (transposed)
      panels::pack_transposed(x.const_data_ptr<float>(), rows, columns, columns, first, last, to);
    else
      panels::pack(x.const_data_ptr<float>(), rows, columns, columns, first, last, depth, to);
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

class PanelGemm : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override { panels::use_narrow(GetParam()); }
  void TearDown() override { panels::use_narrow(false); }
};

const std::vector<std::array<int64_t, 3>> kShapes = {{1, 1, 1},   {8, 32, 32},  {7, 33, 31},  {13, 50, 37},
                                                     {6, 16, 64}, {70, 96, 33}, {15, 31, 95}, {128, 64, 96},
                                                     {3, 200, 5}, {0, 40, 8},   {5, 0, 8},    {9, 70, 0}};

TEST_P(PanelGemm, EqualsTheProduct) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool add : {false, true}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << (add ? ", added" : ""));
      const torch::Tensor a = wave({m, k}, 0.1, torch::kFloat32), b = wave({k, n}, 0.7, torch::kFloat32);
      const torch::Tensor right = in_panels(b), left = in_panels(a);
      const torch::Tensor expected = torch::mm(a.to(torch::kFloat64), b.to(torch::kFloat64)) + (add ? 0.5 : 0.0);
      EXPECT_TRUE(torch::equal(in_panels(b.t().contiguous(), /*transposed=*/true), right));
      for (const bool panelled : {false, true}) {
        Result c(m, n, 0.5f);
        const panels::Left from = panelled ? panels::Left::in_panels(left.const_data_ptr<float>(), m)
                                           : panels::Left::row_major(a.const_data_ptr<float>(), k);
        panels::multiply(m, n, k, from, right.const_data_ptr<float>(), add, c.data(), c.ld());
        expect_close(c.part, expected, k);
        EXPECT_TRUE(c.kept_its_bounds());
      }
    }
}

TEST_P(PanelGemm, EqualsTheTransposedProduct) {
  for (const auto& [m, n, k] : kShapes)
    for (const bool add : {false, true}) {
      SCOPED_TRACE(::testing::Message() << m << " x " << n << " x " << k << (add ? ", added" : ""));
      const torch::Tensor a = wave({k, m}, 0.1, torch::kFloat32), b = wave({k, n}, 0.7, torch::kFloat32);
      const torch::Tensor left = in_panels(a), right = in_panels(b);
      Result c(m, n, 0.5f);
      const panels::TransposedJob job{
          k, left.const_data_ptr<float>(), k, m, right.const_data_ptr<float>(), k, n, add, c.data(), c.ld()};
      const int64_t groups = panels::count(m), half = groups / 2;
      panels::multiply_transposed(job, 0, half, 0, panels::count(n));
      panels::multiply_transposed(job, half, groups, 0, panels::count(n));
      expect_close(c.part, torch::mm(a.t().to(torch::kFloat64), b.to(torch::kFloat64)) + (add ? 0.5 : 0.0), k);
      EXPECT_TRUE(c.kept_its_bounds());
    }
}

// The control: a product with another matrix is not within the tolerance.
TEST_P(PanelGemm, AnotherMatrixIsFar) {
  const torch::Tensor a = wave({9, 40}, 0.1, torch::kFloat32), b = wave({40, 33}, 0.7, torch::kFloat32);
  const torch::Tensor right = in_panels(b);
  Result c(9, 33, 0.0f);
  panels::multiply(9, 33, 40, panels::Left::row_major(a.const_data_ptr<float>(), 40), right.const_data_ptr<float>(),
                   false, c.data(), c.ld());
  EXPECT_GT((c.part - torch::mm(a, wave({40, 33}, 0.8, torch::kFloat32))).abs().max().item<float>(), 1e-2f);
}

INSTANTIATE_TEST_SUITE_P(Lanes, PanelGemm, ::testing::Bool(),
                         [](const auto& lanes) { return lanes.param ? std::string("Narrow") : std::string("Wide"); });

}  // namespace
}  // namespace redline::models
