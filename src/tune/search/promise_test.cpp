#include "tune/search/promise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

// Promises of 1.4x that a run at another time kept, of 400, on a machine whose speed wanders by `drift` (log) from one
// moment to the next: a slower machine makes the ratio larger by `share` of that. Blocks of a minute see some of it.
int kept_promises(double drift, double share, bool knows_the_machine) {
  int inside = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    KeyedStream draw(seed, 2, 0, 4);
    const auto blocks = [&](std::vector<double>& a, std::vector<double>& b) {
      const double slow = drift * draw.normal();
      for (int i = 0; i < 8; ++i) {
        const double now = slow + 0.3 * drift * draw.normal();
        a.push_back(std::exp(now + 0.05 * draw.normal()));
        b.push_back(std::exp((1 - share) * now + 0.05 * draw.normal()) / 1.4);
      }
    };
    std::vector<double> a, b, later_a, later_b, reference;
    blocks(a, b), blocks(later_a, later_b);
    for (int i = 0; knows_the_machine && i < 20; ++i)
      reference.push_back(std::exp(drift * draw.normal() + 0.05 * draw.normal()));
    inside += promised_interval(measure::compare_blocks(a, b), a, b, reference)
                  .contains(measure::compare_blocks(later_a, later_b).ratio);
  }
  return inside;
}

TEST(Promise, CoversARunAtAnotherTime) {
  EXPECT_GE(kept_promises(0, 0.4, false), 370);
  EXPECT_GE(kept_promises(0, 0.4, true), 370);
  EXPECT_GE(kept_promises(0.15, 0.4, true), 360);
  EXPECT_LT(kept_promises(0.3, 0.4, false), 340);  // control: the blocks alone know nothing of it
}

TEST(Promise, WhereTheRatioDoesNotFollowTheMachineItStaysNarrow) {
  std::vector<double> a, b, apart, reference;
  for (int i = 0; i < 12; ++i) {
    const double slow = 0.2 * std::sin(i);
    a.push_back(std::exp(slow)), b.push_back(std::exp(slow) / 1.4), apart.push_back(std::exp(0.4 * slow) / 1.4);
    reference.push_back(std::exp(slow));
  }
  const auto width = [&](const std::vector<double>& tuned) {
    const measure::Interval promised =
        promised_interval(measure::RatioEstimate{1.4, {1.38, 1.42}, 12}, a, tuned, reference);
    EXPECT_TRUE(promised.contains(1.4));
    return promised.high / promised.low;
  };
  EXPECT_LT(width(b), 1.2);
  EXPECT_GT(width(apart), 1.3);
}

TEST(Promise, IsNeverNarrowerThanARunIsRepeatable) {
  const measure::Interval promised = promised_interval({1.5, {1.5, 1.5}, 12}, {}, {}, {});
  EXPECT_NEAR(promised.high / promised.low, std::exp(0.03), 1e-9);
}

}  // namespace
}  // namespace redline::tune
