#include "doctor/rules/cost_fit.h"

#include <gtest/gtest.h>

#include "core/philox.h"

namespace redline::doctor {
namespace {

using measure::Phase;
using measure::StepRow;

// Steps of one piece whose time is `fixed` ms + 1 us per item + `per_padding` us per padded item, with 2 % noise.
std::vector<StepRow> make_rows(double fixed_ms, double per_padding_us, int64_t steps = 60, bool same_length = false) {
  std::vector<StepRow> rows;
  for (int64_t i = 0; i < steps; ++i) {
    KeyedStream draw(3, 0, static_cast<uint64_t>(i), 5);
    StepRow row;
    row.step = i + 1;
    row.micro_batches = 1;
    row.items = same_length ? 10'000 : draw.uniform_int(5'000, 15'000);
    row.padded_items = row.items + (same_length ? 5'000 : draw.uniform_int(1'000, 9'000));
    const double ms = fixed_ms + 1e-3 * static_cast<double>(row.items) +
                      1e-3 * per_padding_us * static_cast<double>(row.padded_items - row.items);
    row.phase_ns[static_cast<size_t>(Phase::Forward)] = static_cast<int64_t>(4e5 * ms * (1 + 0.02 * draw.normal()));
    row.phase_ns[static_cast<size_t>(Phase::Backward)] = static_cast<int64_t>(6e5 * ms * (1 + 0.02 * draw.normal()));
    rows.push_back(row);
  }
  return rows;
}

TEST(CostFit, TellsPaddingThatIsComputedFromPaddingThatIsPacked) {
  const CostFit computed = fit_costs(make_rows(0, 1.0)), packed = fit_costs(make_rows(0, 0.0));
  ASSERT_TRUE(computed.known);
  ASSERT_TRUE(packed.known);
  EXPECT_NEAR(computed.padding_share, 5.0 / 15.0, 0.04);
  EXPECT_NEAR(packed.padding_share, 0.0, 0.03);
}

TEST(CostFit, FindsWhatDoesNotGrowWithTheBatch) {
  const CostFit fit = fit_costs(make_rows(15, 1.0));  // 15 of 30 ms
  ASSERT_TRUE(fit.known);
  EXPECT_NEAR(fit.fixed_share, 0.5, 0.08);
}

TEST(CostFit, OneHeldUpStepDoesNotMatter) {
  auto rows = make_rows(0, 1.0);
  rows[7].phase_ns[static_cast<size_t>(Phase::Forward)] *= 20;
  EXPECT_NEAR(fit_costs(rows).padding_share, 5.0 / 15.0, 0.04);
}

// Batches of one sample: lengths alone tell what does not grow, and nothing is said of padding.
TEST(CostFit, StepsWithoutPaddingTellTheFixedCost) {
  auto rows = make_rows(10, 0.0);  // 10 of 20 ms
  for (StepRow& row : rows) row.padded_items = row.items;
  const CostFit fit = fit_costs(rows);
  ASSERT_TRUE(fit.known);
  EXPECT_FALSE(fit.saw_padding);
  EXPECT_NEAR(fit.fixed_share, 0.5, 0.05);
  EXPECT_LT(fit.fixed_error, 0.05);
  EXPECT_EQ(fit.padding_share, 0);
  EXPECT_EQ(fit.padding_error, 0);
  EXPECT_EQ(fit.padding_seconds, 0);
  auto alike = make_rows(10, 0.0, 60, true);
  for (StepRow& row : alike) row.padded_items = row.items;
  EXPECT_FALSE(fit_costs(alike).known);
}

TEST(CostFit, DoesNotGuess) {
  EXPECT_FALSE(fit_costs(make_rows(0, 1.0, 12)).known);        // too few
  EXPECT_FALSE(fit_costs(make_rows(0, 1.0, 60, true)).known);  // all alike
  EXPECT_FALSE(fit_costs({}).known);
}

}  // namespace
}  // namespace redline::doctor
