#include "measure/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline::measure {
namespace {

TEST(Metrics, FindsDeclaredNamesAndTheirValidationTwins) {
  const MetricTable& table = standard_metrics();
  ASSERT_NE(table.find("loss"), nullptr);
  EXPECT_EQ(table.find("val_loss"), table.find("loss"));
  EXPECT_EQ(table.find("val_val_loss"), nullptr);
  EXPECT_EQ(table.find("no_such"), nullptr);
  EXPECT_EQ(table.find(""), nullptr);
  EXPECT_EQ(table.find("val_"), nullptr);
}

TEST(Metrics, RefusesDuplicatesAndOddNames) {
  MetricTable table = standard_metrics();
  EXPECT_THROW(table.add({"loss", MetricType::Mean, "", "again"}), ConfigError);
  for (const char* name : {"", "Loss", "a b", "a\"b", "a\nb"})
    EXPECT_THROW(table.add({name, MetricType::Mean, "", ""}), ConfigError) << name;
  EXPECT_NO_THROW(table.add({"kl/dim_3", MetricType::Mean, "nats", "x"}));
  EXPECT_EQ(standard_metrics().find("kl/dim_3"), nullptr) << "a task's metrics do not leak into the standard table";
}

TEST(Metrics, EveryMetricIsDescribed) {
  for (const MetricInfo& metric : standard_metrics().all()) {
    EXPECT_THAT(metric.sentence, testing::EndsWith(".")) << metric.name;
    EXPECT_GT(metric.sentence.size(), 15U) << metric.name;
  }
}

TEST(Metrics, Markdown) {
  const std::string text = metrics_markdown({{"Every run", {{"loss", MetricType::Mean, "", "The loss."}}}});
  EXPECT_THAT(
      text,
      testing::HasSubstr(
          "## Every run\n\n| name | type | unit | meaning |\n|---|---|---|---|\n| `loss` | mean |  | The loss. |\n"));
}

// docs/metrics.md begins with the standard table; the sections of the tasks follow it. To write it anew: `make docs`.
TEST(Metrics, TheDocumentIsInStep) {
  const std::string expected = metrics_markdown({{"Every run", standard_metrics().all()}});
  const std::string text = read_file(std::string(REDLINE_SOURCE_DIR) + "/docs/metrics.md");
  EXPECT_EQ(text.substr(0, expected.size()), expected);
}

}  // namespace
}  // namespace redline::measure
