#include "tune/search/race.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/philox.h"

namespace redline::tune {
namespace {

// Runs one race with log-normal noise of `noise` per block and machine drift shared by both.
RaceDecision run_race(double true_gain, double noise, uint64_t seed, int* blocks = nullptr) {
  Race race;
  KeyedStream draw(seed, 0, 0, 3);
  double drift = 1.0;
  while (race.decide() == RaceDecision::Continue) {
    drift *= std::exp(0.05 * draw.normal());
    race.add(drift * std::exp(noise * draw.normal()), drift / (1 + true_gain) * std::exp(noise * draw.normal()));
  }
  if (blocks != nullptr) *blocks = race.blocks();
  return race.decide();
}

TEST(Race, NoFalseGains) {
  for (double noise : {0.005, 0.02, 0.06}) {
    int claims = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) claims += run_race(0.0, noise, seed) == RaceDecision::Better;
    EXPECT_LE(claims, 20) << noise;  // 5 %
  }
}

TEST(Race, FindsRealGainsQuickly) {
  int found = 0, blocks = 0, total = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    found += run_race(0.15, 0.02, seed, &blocks) == RaceDecision::Better;
    total += blocks;
  }
  EXPECT_GE(found, 95);
  EXPECT_LE(total, 450);
}

TEST(Race, DropsLosersEarly) {
  int blocks = 0, total = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    EXPECT_EQ(run_race(-0.2, 0.02, seed, &blocks), RaceDecision::NotBetter);
    total += blocks;
  }
  EXPECT_LE(total, 350);
}

}  // namespace
}  // namespace redline::tune
