// Statistics that span ranks: two ranks, played one after the other by a collective that knows the other's sums,
// against one process with all rows; and a rank without samples, whose stand-in must leave no trace.
#include "models/layers/batch_norm.h"

#include <gtest/gtest.h>

namespace redline::models {
namespace {

// The other rank's part of every sum, in the order in which it is asked; `adds`: whether this rank's part counts.
class OtherRank : public task::Collective {
 public:
  OtherRank(std::vector<torch::Tensor> sums, bool adds) : sums_(std::move(sums)), adds_(adds) {}
  int rank() const override { return 0; }
  int world_size() const override { return 2; }
  torch::Tensor all_reduce_sum(const torch::Tensor& value) override {
    own.push_back(value.detach().clone());
    const torch::Tensor other = next_ < sums_.size() ? sums_[next_] : torch::zeros_like(value);
    ++next_;
    return adds_ ? value.detach() + other : other.clone();
  }
  std::vector<torch::Tensor> own;

 private:
  std::vector<torch::Tensor> sums_;
  bool adds_;
  size_t next_ = 0;
};

struct Side {
  torch::Tensor out, gradient, weight_gradient;
  std::vector<torch::Tensor> sums;  // what it gave to each
};

torch::Tensor some_rows(int64_t rows, double phase) {
  return (torch::arange(rows * 3, torch::kFloat32) * 1.7 + phase).sin().view({rows, 3});
}

Side run(const torch::Tensor& rows, const torch::Tensor& seed, task::Collective* collective, bool counts) {
  BatchNorm norm(3);
  norm->initialise();
  const std::vector<int64_t> ids{1};
  task::Context ctx(/*seed=*/1, /*step=*/0, /*training=*/true, ids);
  ctx.collective = collective;
  ctx.counts = counts;
  const torch::Tensor x = rows.clone().requires_grad_(true);
  Side side;
  const torch::Tensor out = norm->forward(x, ctx);
  out.backward(seed);
  side.out = out.detach();
  side.gradient = x.grad();
  side.weight_gradient = norm->weight.grad();
  return side;
}

// Each side's sums depend on the other's earlier ones, so they are played until nothing changes any more.
std::pair<Side, Side> two_sides(const torch::Tensor& a, const torch::Tensor& b, const torch::Tensor& seed_a,
                                const torch::Tensor& seed_b, bool b_counts) {
  std::pair<Side, Side> sides;
  for (int round = 0; round < 5; ++round) {
    OtherRank for_a(sides.second.sums, true);
    sides.first = run(a, seed_a, &for_a, true);
    sides.first.sums = for_a.own;
    OtherRank for_b(sides.first.sums, b_counts);
    sides.second = run(b, seed_b, &for_b, b_counts);
    sides.second.sums = for_b.own;
    if (!b_counts)
      for (torch::Tensor& sum : sides.second.sums) sum.zero_();
  }
  return sides;
}

TEST(BatchNormOverRanks, TwoRanksAreOneProcess) {
  const torch::Tensor a = some_rows(5, 0.1), b = some_rows(3, 4.0), seed_a = some_rows(5, 2.0),
                      seed_b = some_rows(3, 3.0);
  const Side whole = run(torch::cat({a, b}), torch::cat({seed_a, seed_b}), nullptr, true);
  const auto [first, second] = two_sides(a, b, seed_a, seed_b, /*b_counts=*/true);
  EXPECT_TRUE(torch::allclose(torch::cat({first.out, second.out}), whole.out, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(torch::cat({first.gradient, second.gradient}), whole.gradient, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(first.weight_gradient + second.weight_gradient, whole.weight_gradient, 1e-5, 1e-6));
}

TEST(BatchNormOverRanks, AStandInLeavesNoTrace) {
  const torch::Tensor a = some_rows(5, 0.1), b = some_rows(3, 4.0), seed_a = some_rows(5, 2.0),
                      nothing = torch::zeros({3, 3});
  const Side alone = run(a, seed_a, nullptr, true);
  const auto [first, stand_in] = two_sides(a, b, seed_a, nothing, /*b_counts=*/false);
  EXPECT_TRUE(torch::allclose(first.out, alone.out, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(first.gradient, alone.gradient, 1e-5, 1e-6));
  EXPECT_TRUE(torch::equal(stand_in.gradient, torch::zeros_like(b)));
  EXPECT_TRUE(torch::equal(stand_in.weight_gradient, torch::zeros({3})));
  // The control: rows that count get a gradient through the statistics, though their own outputs have none.
  const auto [other, counted] = two_sides(a, b, seed_a, nothing, /*b_counts=*/true);
  EXPECT_GT(counted.gradient.abs().max().item<double>(), 1e-3);
}

// Four ranks of which one has no sample, and rows by hand in float64: what is left between ranks and one process is the
// rounding that either has from the exact gradient.
TEST(BatchNormOverRanks, FourRanksWithThreeSamplesAreAsExactAsOneProcess) {
  constexpr size_t kWorld = 4, kStandIn = 3;
  std::vector<torch::Tensor> rows, seeds;
  for (size_t r = 0; r < kWorld; ++r) {
    const auto count = static_cast<int64_t>(40 + 7 * r);
    rows.push_back(some_rows(count, 1.3 * static_cast<double>(r)) + 3.0);  // a mean that a difference of squares loses
    seeds.push_back(r == kStandIn ? torch::zeros({count, 3}) : some_rows(count, 5.0 + static_cast<double>(r)));
  }
  std::vector<Side> sides(kWorld);
  for (int round = 0; round < 8; ++round)
    for (size_t r = 0; r < kWorld; ++r) {
      std::vector<torch::Tensor> others;
      for (size_t q = 0; q < kWorld; ++q)
        for (size_t i = 0; q != r && q != kStandIn && i < sides[q].sums.size(); ++i) {
          if (i == others.size()) others.push_back(torch::zeros_like(sides[q].sums[i]));
          others[i] += sides[q].sums[i];
        }
      OtherRank collective(others, /*adds=*/r != kStandIn);
      sides[r] = run(rows[r], seeds[r], &collective, /*counts=*/r != kStandIn);
      sides[r].sums = collective.own;
    }
  const torch::Tensor x = torch::cat({rows[0], rows[1], rows[2]}), seed = torch::cat({seeds[0], seeds[1], seeds[2]});
  const torch::Tensor exact_x = x.to(torch::kFloat64).requires_grad_(true), mean = exact_x.mean(0);
  const torch::Tensor variance = (exact_x - mean).pow(2).mean(0);
  const torch::Tensor exact_out = (exact_x - mean) * torch::rsqrt(variance + 1e-5);
  exact_out.backward(seed.to(torch::kFloat64));
  const auto far = [&](const torch::Tensor& gradient) {
    return (gradient.to(torch::kFloat64) - exact_x.grad()).abs().max().item<double>();
  };
  const double one_process = far(run(x, seed, nullptr, true).gradient),
               ranks = far(torch::cat({sides[0].gradient, sides[1].gradient, sides[2].gradient}));
  EXPECT_GT(exact_x.grad().abs().max().item<double>(), 0.1);
  EXPECT_LT(one_process, 2e-6);
  EXPECT_LT(ranks, 2e-6);
  EXPECT_TRUE(torch::equal(sides[kStandIn].gradient, torch::zeros_like(rows[kStandIn])));
}

}  // namespace
}  // namespace redline::models
