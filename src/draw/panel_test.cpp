#include "draw/panel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace redline::draw {
namespace {

using ::testing::HasSubstr;

TEST(Panel, PlacesDataBetweenItsAxes) {
  const auto canvas = make_svg(200, 100, "t");
  Panel panel(*canvas, {0, 0}, 200, 100, "p");  // the plot is 140 x 42 at (48, 30)
  panel.axes(0, 10, 0, 4);
  panel.curve({"s", kBlue, {{0, 0}, {5, 2}, {10, 4}}});
  panel.bar(5, 2, 100, kGrey);  // cut off at the top of the axis
  panel.shade(10, 10, kRed);    // one point wide at least
  const std::string svg = canvas->finish();
  EXPECT_THAT(svg, HasSubstr("points=\"48.00,72.00 118.00,51.00 188.00,30.00\""));
  EXPECT_THAT(svg, HasSubstr("cx=\"188.00\" cy=\"30.00\"")) << "the end of the curve";
  EXPECT_THAT(svg, HasSubstr("<rect x=\"104.00\" y=\"30.00\" width=\"28.00\" height=\"42.00\" fill=\"#9ca3af\""));
  EXPECT_THAT(svg, HasSubstr("<rect x=\"188.00\" y=\"30.00\" width=\"1.00\" height=\"42.00\" fill=\"#dc2626\""));
  for (const char* label : {">0<", ">1<", ">4<", ">5<", ">10<"}) EXPECT_THAT(svg, HasSubstr(label));
}

TEST(Panel, LabelsLargeNumbersShortly) {
  const auto canvas = make_svg(200, 100, "t");
  Panel(*canvas, {0, 0}, 200, 100, "p").axes(0, 4e6, 0, 40000);
  const std::string svg = canvas->finish();
  EXPECT_THAT(svg, HasSubstr(">2M<"));
  EXPECT_THAT(svg, HasSubstr(">20k<"));
}

}  // namespace
}  // namespace redline::draw
