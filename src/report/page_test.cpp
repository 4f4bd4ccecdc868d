#include "report/page.h"
#include "report/parts/chart.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/philox.h"
#include "core/strings.h"

namespace redline::report {
namespace {

using testing::HasSubstr;
using testing::Not;

RunPart make_part(const std::string& name, int steps) {
  RunPart part;
  part.name = name;
  part.record.config_yaml = "task: <b>x</b>  # file:1\n";
  for (int i = 0; i < steps; ++i) {
    measure::StepRow row;
    row.step = i + 1;
    row.phase_ns[static_cast<size_t>(measure::Phase::Forward)] = 4'000'000 + 1000 * (i % 7);
    row.phase_ns[static_cast<size_t>(measure::Phase::Wait)] = 1'000'000;
    for (int64_t ns : row.phase_ns) row.wall_ns += ns;
    row.samples = 8;
    row.micro_batches = 1;
    row.loss = 5.0 / (1 + i * 0.01);
    row.items = 70;
    row.padded_items = 100;
    row.peak_bytes = 1 << 28;
    part.record.steps.push_back(row);
  }
  part.record.events.push_back(
      {"2026-01-01T00:00:00Z", "guard.nan", {{"tensor", std::string("<img src=x onerror=1>")}}});
  part.seen = doctor::observe(part.record.steps);
  part.diagnosis = doctor::diagnose({}, part.seen, {}, {});
  return part;
}

TEST(Chart, SmallNumbersFitBesideAnAxis) {
  const std::string svg = draw_lines({"Learning rate", "step", "learning rate", {{"", {{0, 0}, {10, 3e-4}}}}});
  EXPECT_NE(svg.find(">1e-4<"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">0<"), std::string::npos);
  EXPECT_EQ(svg.find(">0.000"), std::string::npos);
}

TEST(Page, NothingFromOutsideBecomesMarkup) {
  const Page page{"", {make_part("run\x1b[31m<script>alert(1)</script>", 40)}, {}};
  const std::string html = render_html(page);
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("<b>x")));
  EXPECT_THAT(html, HasSubstr("default-src 'none'"));
  EXPECT_EQ(html.find('\x1b'), std::string::npos);
  EXPECT_EQ(render_text(page, 80).find('\x1b'), std::string::npos);
}

TEST(Page, AHundredThousandStepsStaySmall) {
  const Page page{"", {make_part("long", 100000)}, {}};
  EXPECT_LT(render_html(page).size(), 2u << 20);
}

TEST(Page, TextFitsItsWidth) {
  const Page page{"", {make_part("run", 50)}, {}};
  for (int width : {40, 60, 80, 120})
    for (const std::string& line : split(render_text(page, width), '\n'))
      EXPECT_LE(static_cast<int>(line.size()), width) << line;
}

TEST(Page, JsonHoldsTheSameNumbers) {
  const Page page{"", {make_part("run", 50)}, {}};
  const auto parsed = nlohmann::json::parse(render_json(page));
  EXPECT_EQ(parsed["schema_version"], 1);
  EXPECT_NEAR(parsed["runs"][0]["samples_per_second"].get<double>(), page.runs[0].seen.samples_per_second, 1e-9);
  EXPECT_NEAR(parsed["runs"][0]["phases"]["wait"]["share"].get<double>(), 0.2, 0.01);
  EXPECT_EQ(parsed["runs"][0]["diagnosis"]["verdict"], doctor::limit_name(page.runs[0].diagnosis->limit));
}

TEST(Page, OperatorsThatFellBackAreNamedWithTheirCost) {
  Page page{"", {make_part("run", 50)}, {}};
  page.runs[0].operators = {{"mm", 8, 0.03, 0.6, 0.9, "bf16", false},
                            {"convolution_backward", 2, 0.015, 0.3, -1, "fp32", true},
                            {"index", 2, 0.005, 0.1, -1, "", false}};
  EXPECT_THAT(render_text(page, 100),
              HasSubstr("Fell back to fp32: 30 % of the operators' time (convolution_backward 30.0 %)."));
  EXPECT_THAT(render_html(page), HasSubstr("<strong>fp32</strong>"));
  const auto parsed = nlohmann::json::parse(render_json(page))["runs"][0]["operators"];
  EXPECT_EQ(parsed[1]["number"], "fp32");
  EXPECT_TRUE(parsed[1]["fell_back"].get<bool>());
  EXPECT_FALSE(parsed[0]["fell_back"].get<bool>());
  page.runs[0].operators[1].fell_back = false;  // an fp32 job
  EXPECT_THAT(render_text(page, 100), Not(HasSubstr("Fell back")));
}

TEST(Page, AnEmptyRunIsSaidNotDrawn) {
  const Page page{"", {make_part("empty", 0)}, {}};
  EXPECT_THAT(render_html(page), HasSubstr("no finished steps"));
  EXPECT_THAT(render_html({}), HasSubstr("nothing to report"));
}

}  // namespace
}  // namespace redline::report
