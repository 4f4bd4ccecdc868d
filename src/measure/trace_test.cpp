#include "measure/trace.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "measure/stage_clock.h"
#include "measure/step_clock.h"

namespace redline::measure {
namespace {

using Json = nlohmann::json;

// The rules of the Trace Event Format that viewers depend on: required keys, and events of one thread nest or are
// disjoint.
void validate_trace(const Json& trace) {
  ASSERT_TRUE(trace.at("traceEvents").is_array());
  std::map<int, std::vector<std::pair<int64_t, int64_t>>> by_thread;  // ns
  for (const Json& event : trace.at("traceEvents")) {
    ASSERT_TRUE(event.at("name").is_string());
    ASSERT_TRUE(event.at("pid").is_number_integer());
    ASSERT_TRUE(event.at("tid").is_number_integer());
    const auto kind = event.at("ph").get<std::string>();
    if (kind == "M") {
      ASSERT_TRUE(event.at("args").at("name").is_string());
      continue;
    }
    ASSERT_EQ(kind, "X");
    ASSERT_GE(event.at("ts").get<double>(), 0);
    ASSERT_GE(event.at("dur").get<double>(), 0);
    const auto begin = static_cast<int64_t>(std::llround(event.at("ts").get<double>() * 1000));
    const auto duration = static_cast<int64_t>(std::llround(event.at("dur").get<double>() * 1000));
    by_thread[event.at("tid").get<int>()].emplace_back(begin, begin + duration);
  }
  for (const auto& [thread, spans] : by_thread) {
    for (size_t i = 0; i < spans.size(); ++i) {
      for (size_t j = i + 1; j < spans.size(); ++j) {
        const auto& [a, b] = spans[i];
        const auto& [c, d] = spans[j];
        const bool disjoint = b <= c || d <= a, inside = (a <= c && d <= b) || (c <= a && b <= d);
        ASSERT_TRUE(disjoint || inside) << "thread " << thread;
      }
    }
  }
}

TEST(Trace, StepsPhasesAndWorkersValidate) {
  SpanLog log;
  StepClock clock;
  StageClock stages(2);
  clock.trace_to(&log);
  stages.trace_to(&log);
  for (int64_t step = 10; step <= 12; ++step) {
    log.begin_step(step);
    clock.begin_step();
    { const PhaseScope wait(clock, Phase::Wait); }
    {
      const PhaseScope forward(clock, Phase::Forward);
      const StageScope decode(stages.slot(1), Stage::Decode);
      const PhaseScope reduce(clock, Phase::Reduce);
    }
    clock.end_step();
  }
  const auto spans = log.take();
  const Json trace = Json::parse(chrome_trace_json(spans, 3));
  validate_trace(trace);
  EXPECT_EQ(trace.at("otherData").at("dropped_spans"), 3);
  std::map<std::string, int> names;
  std::map<int, std::string> threads;
  for (const Json& event : trace.at("traceEvents")) {
    ++names[event.at("name").get<std::string>()];
    if (event.at("name") == "thread_name")
      threads[event.at("tid").get<int>()] = event.at("args").at("name").get<std::string>();
  }
  EXPECT_EQ(names["step 10"], 1);
  EXPECT_EQ(names["step 12"], 1);
  EXPECT_EQ(names["decode"], 3);
  EXPECT_GE(names["wait"], 1);
  EXPECT_EQ(threads[0], "main");
  EXPECT_EQ(threads[2], "worker 1");
}

TEST(Trace, KeepsNanosecondsOfLargeClocks) {
  const int64_t origin = int64_t{1} << 60;
  const Span spans[] = {{origin, origin + 1, 1, 0, false, 0}, {origin + 1'000'001, origin + 2'000'003, 1, 0, false, 2}};
  const Json trace = Json::parse(chrome_trace_json(spans));
  const Json& last = trace.at("traceEvents").back();
  EXPECT_EQ(last.at("name"), "forward");
  EXPECT_DOUBLE_EQ(last.at("ts").get<double>(), 1000.001);
  EXPECT_DOUBLE_EQ(last.at("dur").get<double>(), 1000.002);
  EXPECT_EQ(last.at("args").at("step"), 1);
  validate_trace(Json::parse(chrome_trace_json({})));
}

// The control: overlapping events on one thread, which viewers draw wrongly, are caught by the validation above.
void validate_overlap() {
  const Span spans[] = {{0, 100, 1, 1, true, 0}, {50, 150, 1, 1, true, 1}};
  validate_trace(Json::parse(chrome_trace_json(spans)));
}
TEST(Trace, TheValidationSeesAnOverlap) { EXPECT_FATAL_FAILURE(validate_overlap(), "thread 1"); }

TEST(Trace, ParsesTheFlag) {
  EXPECT_EQ(parse_step_range("steps=10..20").first, 10);
  EXPECT_EQ(parse_step_range("steps=10..20").last, 20);
  EXPECT_EQ(parse_step_range("steps=7").last, 7);
  EXPECT_TRUE(parse_step_range("steps=7").contains(7));
  EXPECT_FALSE(parse_step_range("steps=7..8").contains(9));
  for (const char* bad :
       {"", "10..20", "steps=", "steps=0..5", "steps=20..10", "steps=a..b", "steps=1..", "steps=1...3"}) {
    EXPECT_THROW(parse_step_range(bad), ConfigError) << bad;
  }
}

}  // namespace
}  // namespace redline::measure
