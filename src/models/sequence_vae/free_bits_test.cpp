#include "models/sequence_vae/free_bits.h"

#include <gtest/gtest.h>

namespace redline::models::sequence_vae {
namespace {

struct PenaltyResult {
  double value;
  torch::Tensor gradient;
};
// Two examples, two dimensions: KL(x1) = 1 + 5 = 6, KL(x2) = 0.5 + 0.5 = 1; batch mean 3.5; dimension means 0.75, 2.75.
PenaltyResult penalty(const std::string& mode, double target) {
  torch::Tensor kl = torch::tensor({{1.0, 5.0}, {0.5, 0.5}}, torch::kFloat64).requires_grad_(true);
  const torch::Tensor out = kl_penalty(kl, {mode, target});
  if (out.requires_grad()) out.backward();
  return {out.item<double>(), kl.grad().defined() ? kl.grad() : torch::zeros_like(kl)};
}
torch::Tensor gradient_grid(double a, double b, double c, double d) {
  return torch::tensor({{a, b}, {c, d}}, torch::kFloat64);
}

TEST(FreeBits, Table) {
  struct Row {
    const char* mode;
    double target, value;
    torch::Tensor gradient;
  };
  const std::vector<Row> rows = {
      {"none", 4.0, 3.5, gradient_grid(0.5, 0.5, 0.5, 0.5)},
      {"per_example", 4.0, 3.0, gradient_grid(0.5, 0.5, 0.0, 0.0)},    // 6 stays, 1 <= 4 is left out
      {"per_example", 6.0, 0.0, gradient_grid(0.0, 0.0, 0.0, 0.0)},    // "at or below" is left out
      {"per_dimension", 4.0, 2.5, gradient_grid(0.0, 0.5, 0.0, 0.0)},  // share 2: only the 5 stays
      {"per_batch", 3.0, 3.5, gradient_grid(0.5, 0.5, 0.5, 0.5)},
      {"per_batch", 3.5, 0.0, gradient_grid(0.0, 0.0, 0.0, 0.0)},
      {"clamp", 4.0, 4.75, gradient_grid(0.0, 0.5, 0.0, 0.5)},  // max(2, 0.75) + max(2, 2.75)
      {"clamp", 20.0, 20.0, gradient_grid(0.0, 0.0, 0.0, 0.0)},
  };
  for (const Row& row : rows) {
    const PenaltyResult got = penalty(row.mode, row.target);
    EXPECT_NEAR(got.value, row.value, 1e-12) << row.mode << " " << row.target;
    EXPECT_TRUE(torch::allclose(got.gradient, row.gradient)) << row.mode << " " << row.target;
  }
}

TEST(FreeBits, OnlyBatchFormsLookAcrossTheBatch) {
  for (const char* mode : {"none", "per_example", "per_dimension"})
    EXPECT_FALSE(looks_across_batch({mode, 1.0})) << mode;
  for (const char* mode : {"per_batch", "clamp"}) EXPECT_TRUE(looks_across_batch({mode, 1.0})) << mode;
}

TEST(FreeBits, KlMatchesTheClosedForm) {
  const torch::Tensor kl = kl_per_dimension(torch::tensor({{0.0, 2.0}}), torch::tensor({{0.0, std::log(4.0)}}));
  EXPECT_NEAR(kl[0][0].item<double>(), 0.0, 1e-7);
  EXPECT_NEAR(kl[0][1].item<double>(), 0.5 * (4.0 + 4.0 - std::log(4.0) - 1.0), 1e-6);
}

}  // namespace
}  // namespace redline::models::sequence_vae
