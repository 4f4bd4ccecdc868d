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

TEST(Charts, OnePointDoesNotFlattenAnAxis) {
  Series series{"", {}, 2};
  for (int i = 0; i < 1000; ++i) series.points.emplace_back(i, i == 500 ? 1e6 : std::sin(i * 0.1));
  const std::string svg = draw_lines({"t", "x", "y", {series}});
  EXPECT_THAT(svg, HasSubstr("1 value beyond the axis"));
  EXPECT_THAT(svg, Not(HasSubstr("1M")));
  EXPECT_THAT(svg, HasSubstr("<title>x ")) << "pointing at a column shows its values";
  for (auto& point : series.points) point.second = point.first;  // nothing is far from the others
  EXPECT_THAT(draw_lines({"t", "x", "y", {series}}), Not(HasSubstr("beyond the axis")));
}

TEST(Charts, MarkersBandsAndDots) {
  Series line{"a", {{0, 1}, {10, 2}}, 2, Look::Line, {{0.5, 1.5}, {1.5, 2.5}}},
      dots{"b", {{5, 1.5}}, 3, Look::Dots, {}};
  const std::string svg = draw_lines({"t", "x", "y", {line, dots}, {{5, "checkpoint <1>", 0}, {99, "outside", 0}}});
  EXPECT_THAT(svg, HasSubstr("class=\"f2 band\""));
  EXPECT_THAT(svg, HasSubstr("<circle class=\"f3\""));
  EXPECT_THAT(svg, HasSubstr("checkpoint &lt;1&gt;"));
  EXPECT_THAT(svg, Not(HasSubstr("outside")));
}

TEST(Charts, AWildIntervalIsCut) {
  const std::string html =
      draw_intervals({"t", "", {{"a", 5, 4, 6, true, 0, false}, {"b", 3, -90, 100000, true, 0, false}}});
  EXPECT_THAT(html, Not(HasSubstr("100000 %</b>")));
  EXPECT_THAT(html, HasSubstr("-90.0 to +100000.0 %")) << "pointing at it tells";
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
