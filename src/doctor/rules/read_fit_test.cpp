#include "doctor/rules/read_fit.h"

#include <gtest/gtest.h>

namespace redline::doctor {
namespace {

// Steps of varying length whose samples were read `ahead` steps before.
std::vector<measure::StepRow> rows_of(double seconds_each, double seconds_an_item, size_t ahead, bool alike = false) {
  std::vector<measure::StepRow> rows(80);
  const auto items = [&](size_t i) { return alike ? 1000.0 : 600.0 + 137.0 * static_cast<double>(i * i % 7); };
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].step = static_cast<int64_t>(i + 1);
    rows[i].items = static_cast<int64_t>(items(i));
    const double noise = 1 + 0.02 * static_cast<double>(i * 13 % 5);
    rows[i].stage_ns[static_cast<size_t>(measure::Stage::Read)] =
        static_cast<int64_t>(1e9 * noise * (seconds_each + seconds_an_item * items(i + ahead)));
  }
  return rows;
}

TEST(ReadFit, BytesThatComeSlowlyGrowWithTheItems) {
  for (const size_t ahead : {0u, 3u}) {
    const ReadFit fit = fit_reads(rows_of(0.001, 1e-4, ahead));
    EXPECT_TRUE(fit.known) << ahead;
    EXPECT_GT(fit.grows, 0.8) << ahead;
  }
}

TEST(ReadFit, ADiskThatIsSlowToBeginDoesNot) {
  const ReadFit fit = fit_reads(rows_of(0.1, 0, 0));
  EXPECT_TRUE(fit.known);
  EXPECT_LT(fit.grows, 0.2);
}

TEST(ReadFit, WhatIsAllAlikeTellsNothing) {
  EXPECT_FALSE(fit_reads(rows_of(0.001, 1e-4, 0, /*alike=*/true)).known);
  EXPECT_FALSE(fit_reads(std::span<const measure::StepRow>()).known);
  const auto rows = rows_of(0.001, 1e-4, 0);
  EXPECT_FALSE(fit_reads(std::span(rows).first(20)).known);
}

}  // namespace
}  // namespace redline::doctor
