#include "measure/record_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::measure {
namespace {

std::string some_events() {
  return lines_header("redline.events") +
         event_line("2026-11-15T20:01:02.345Z", "guard.nan",
                    {{"step", int64_t{12}},
                     {"tensor", std::string("enc \"x\"\n\x1b[31m")},
                     {"loss", std::nan("")},
                     {"retried", true}}) +
         event_line("2026-11-15T20:01:03.000Z", "checkpoint.saved",
                    {{"seconds", 2.0}, {"bad", std::string("\xff\xfe")}}) +
         event_line("t", "empty", {});
}

TEST(JsonLines, EventsReadBack) {
  std::vector<Event> events;
  const LinesContent content = read_events(some_events(), "events.jsonl", events);
  EXPECT_TRUE(content.warnings.empty());
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].time, "2026-11-15T20:01:02.345Z");
  EXPECT_EQ(events[0].kind, "guard.nan");
  ASSERT_EQ(events[0].fields.size(), 4U);
  EXPECT_EQ(events[0].fields[1].first, "tensor") << "fields keep their order";
  EXPECT_EQ(std::get<int64_t>(*events[0].find("step")), 12);
  EXPECT_EQ(std::get<std::string>(*events[0].find("tensor")), "enc \"x\"\n\x1b[31m");
  EXPECT_EQ(std::get<std::string>(*events[0].find("loss")), "nan");
  EXPECT_TRUE(std::get<bool>(*events[0].find("retried")));
  EXPECT_EQ(std::get<double>(*events[1].find("seconds")), 2.0) << "a whole number stays a double";
  EXPECT_EQ(events[0].find("absent"), nullptr);
  EXPECT_TRUE(events[2].fields.empty());
}

TEST(JsonLines, NoRawControlCharactersInTheFile) {
  for (char c : some_events()) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20);
}

TEST(JsonLines, TruncatedAtEveryByteDropsExactlyTheTornLine) {
  const std::string whole = some_events();
  for (size_t size = 0; size <= whole.size(); ++size) {
    const std::string bytes = whole.substr(0, size);
    std::vector<Event> events;
    const LinesContent content = read_events(bytes, "events.jsonl", events);
    const auto lines = static_cast<size_t>(std::count(bytes.begin(), bytes.end(), '\n'));
    ASSERT_EQ(events.size(), lines == 0 ? 0 : lines - 1) << "cut at byte " << size;
    const size_t newline = bytes.rfind('\n');
    ASSERT_EQ(content.good_bytes, newline == std::string::npos ? 0 : static_cast<int64_t>(newline) + 1);
    ASSERT_EQ(content.warnings.size(), bytes.empty() || bytes.back() == '\n' ? 0U : 1U) << "cut at byte " << size;
  }
}

TEST(JsonLines, BadLinesAreNamedAndLeftOut) {
  std::vector<Event> events;
  const std::string text = lines_header("redline.events") + "{broken\n" + "[1,2]\n" + R"({"time":1,"kind":"x"})" +
                           "\n" + R"({"time":"t","kind":"x","fields":{"a":[1]}})" + "\n" + event_line("t", "good", {});
  const LinesContent content = read_events(text, "events.jsonl", events);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].kind, "good");
  EXPECT_THAT(content.warnings, testing::ElementsAre(testing::HasSubstr("line 2"), testing::HasSubstr("line 3"),
                                                     testing::HasSubstr("line 4"), testing::HasSubstr("line 5")));
}

TEST(JsonLines, RefusesAnotherFormatOrVersion) {
  std::vector<Event> events;
  EXPECT_THROW(read_events("{\"format\":\"redline.metrics\",\"version\":1}\n", "x", events), DataError);
  EXPECT_THROW(read_events("{\"format\":\"redline.events\",\"version\":2}\n", "x", events), DataError);
  EXPECT_THROW(read_events("{\"format\":\"redline.events\"}\n", "x", events), DataError);
  EXPECT_THROW(read_events("junk\n", "x", events), DataError);
}

TEST(JsonLines, MetricsReadBack) {
  const double values[] = {0.1, -1e-300, 3, 1e22, std::nan(""), HUGE_VAL, -HUGE_VAL, 0, -0.0, 123456789.123456789};
  std::string text = lines_header("redline.metrics");
  for (size_t i = 0; i < std::size(values); ++i)
    text += metric_line(static_cast<int64_t>(i), "val_loss/a_1", values[i]);
  std::vector<MetricPoint> points;
  EXPECT_TRUE(read_metrics(text, "m", points).warnings.empty());
  ASSERT_EQ(points.size(), std::size(values));
  for (size_t i = 0; i < std::size(values); ++i) {
    EXPECT_EQ(points[i].step, static_cast<int64_t>(i));
    EXPECT_EQ(points[i].name, "val_loss/a_1");
    if (std::isnan(values[i])) {
      EXPECT_TRUE(std::isnan(points[i].value));
    } else {
      EXPECT_EQ(points[i].value, values[i]);
    }
  }
}

TEST(JsonLines, AResumedMetricReplacesWhatFollowed) {
  std::string text = lines_header("redline.metrics");
  for (int64_t step : {10, 20, 30}) text += metric_line(step, "loss", static_cast<double>(step));
  text += metric_line(30, "val_loss", 1) + metric_line(20, "loss", 21) + metric_line(30, "loss", 31) +
          metric_line(30, "val_loss", 2);
  std::vector<MetricPoint> points;
  read_metrics(text, "m", points);
  std::vector<std::pair<int64_t, double>> loss;
  std::vector<double> validation;
  for (const MetricPoint& point : points) {
    if (point.name == "loss") loss.emplace_back(point.step, point.value);
    if (point.name == "val_loss") validation.push_back(point.value);
  }
  EXPECT_EQ(loss, (std::vector<std::pair<int64_t, double>>{{10, 10}, {20, 21}, {30, 31}}));
  EXPECT_EQ(validation, std::vector<double>{2});
}

// The fast path must say what the JSON library says, or nothing.
TEST(JsonLines, FastPathEqualsTheReferenceOnMutatedLines) {
  const std::string alphabet = "0123456789.eE+-\"{}:,_/ axn\\";
  KeyedStream draws(5, 0, 0, 0);
  int taken = 0;
  for (int i = 0; i < 10000; ++i) {
    std::string line =
        metric_line(draws.uniform_int(-5, 1000000), "loss_1", draws.normal() * std::pow(10.0, draws.uniform(-20, 20)));
    line.pop_back();
    const int64_t edits = draws.uniform_int(0, 2);
    for (int64_t e = 0; e < edits; ++e) {
      const auto at = static_cast<size_t>(draws.uniform_int(0, static_cast<int64_t>(line.size()) - 1));
      const char c = alphabet[static_cast<size_t>(draws.uniform_int(0, static_cast<int64_t>(alphabet.size()) - 1))];
      switch (draws.uniform_int(0, 2)) {
        case 0:
          line[at] = c;
          break;
        case 1:
          line.insert(at, 1, c);
          break;
        default:
          line.erase(at, 1);
          break;
      }
    }
    const auto fast = parse_metric_line_fast(line);
    if (!fast) continue;
    ++taken;
    const auto plain = parse_metric_line(line);
    ASSERT_TRUE(plain.has_value()) << line;
    EXPECT_EQ(fast->step, plain->step) << line;
    EXPECT_EQ(fast->name, plain->name) << line;
    EXPECT_EQ(fast->value, plain->value) << line;
  }
  EXPECT_GT(taken, 3000) << "what we write ourselves takes the fast path";
}

}  // namespace
}  // namespace redline::measure
