#include "report/parts/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace redline::report {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Thin, KeepsExtremesAndOrder) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 100000; ++i) points.emplace_back(i, i == 54321 ? 99.0 : i == 777 ? -99.0 : std::sin(i * 0.01));
  const auto kept = thin(points, 400);
  EXPECT_LE(kept.size(), 800u);
  EXPECT_TRUE(std::is_sorted(kept.begin(), kept.end()));
  EXPECT_NE(std::find(kept.begin(), kept.end(), std::pair(54321.0, 99.0)), kept.end());
  EXPECT_NE(std::find(kept.begin(), kept.end(), std::pair(777.0, -99.0)), kept.end());
}

TEST(Thin, DropsWhatCannotBeDrawn) {
  const auto kept = thin({{0, 1}, {1, NAN}, {2, INFINITY}, {3, 4}});
  EXPECT_EQ(kept.size(), 2u);
}

TEST(Charts, EscapeWhatTheyAreGiven) {
  const LineChart chart{
      "<script>alert(1)</script>", "x", "y", {{"a\"b", {{0, 0}, {1, 1}}, 0}, {"c", {{0, 1}, {1, 0}}, 1}}};
  const std::string svg = draw_lines(chart);
  EXPECT_THAT(svg, Not(HasSubstr("<script")));
  EXPECT_THAT(svg, HasSubstr("&lt;script&gt;"));
  EXPECT_THAT(svg, HasSubstr("a&quot;b"));
}

TEST(Charts, DrawEmptyAndFlatData) {
  EXPECT_THAT(draw_lines({"t", "x", "y", {{"s", {}, 0}}}), HasSubstr("<svg"));
  EXPECT_THAT(draw_lines({"t", "x", "y", {{"s", {{1, 5}, {2, 5}}, 0}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(draw_stacked({"t", {{"run", {}}}}), Not(HasSubstr("nan")));
  EXPECT_THAT(draw_intervals({"t", "", {}}), Not(HasSubstr("nan")));
}

TEST(Charts, StackedBarsAreInProportion) {
  const std::string svg = draw_stacked({"t", {{"run", {{"forward", 0.030, 2}, {"backward", 0.060, 3}}}}});
  EXPECT_THAT(svg, HasSubstr("width:33.33%"));
  EXPECT_THAT(svg, HasSubstr("width:66.67%"));
  EXPECT_THAT(svg, HasSubstr("90 ms"));
  EXPECT_THAT(svg, HasSubstr("backward 60 ms (66.7 %)"));  // one bar: the legend says how much
}

TEST(Charts, IntervalsShareOneScale) {
  IntervalChart chart{"gains", "predicted", {{"a", 50, 40, 60, true, 48, true}, {"b", -25, -30, -20, true, 0, false}}};
  const std::string html = draw_intervals(chart);
  // From -30 to 60 with 4 % margins: 0 lies at 34.6 of 97.2.
  EXPECT_THAT(html, HasSubstr("class=\"zero\" style=\"left:34.57%\""));
  EXPECT_THAT(html, HasSubstr("class=\"box c2\" style=\"left:34.57%;width:51.44%\""));
  EXPECT_THAT(html, HasSubstr("class=\"box c3\" style=\"left:8.85%;width:25.72%\""));
  EXPECT_THAT(html, HasSubstr("-25.0 %"));
  EXPECT_THAT(html, HasSubstr("predicted"));
}

}  // namespace
}  // namespace redline::report
