#include "measure/reduce_timeline.h"

#include <gtest/gtest.h>

namespace redline::measure {
namespace {

ReduceTimeline example() {
  ReduceTimeline timeline;
  timeline.step = 7;
  timeline.buckets = {{1000, 10, 30}, {4000, 20, 60}, {2000, 100, 130}};
  timeline.backward_ns = 100;
  timeline.end_ns = 135;
  timeline.own_ns = 900;
  timeline.exchanges = 2;
  timeline.exchange_ns = 80;
  timeline.samples = 5;
  timeline.gradient_squared = 0.25;
  timeline.variance = 3.5;
  return timeline;
}

TEST(ReduceTimeline, SplitsFlightsIntoBesideAndAfterBackward) {
  const ReduceTimeline timeline = example();
  EXPECT_EQ(timeline.overlapped_ns(), 50) << "10 to 60; the third begins when backward ends";
  EXPECT_EQ(timeline.exposed_ns(), 35);
  EXPECT_EQ(timeline.bytes(), 7000);
  ReduceTimeline late = timeline;
  late.buckets = {{1, 0, 40}, {1, 50, 300}};
  EXPECT_EQ(late.overlapped_ns(), 40 + 50) << "only what lies within backward";
  EXPECT_EQ(ReduceTimeline().overlapped_ns(), 0);
}

TEST(ReduceTimeline, TheEventHoldsItWhole) {
  const Event event{"", kReduceTimelineEvent, timeline_fields(example())};
  const auto back = timeline_of(event);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(timeline_fields(*back), event.fields);
  EXPECT_EQ(back->buckets[1].done_ns, 60);
  EXPECT_EQ(*back->variance, 3.5);
}

TEST(ReduceTimeline, BucketsAreATenthWithinBounds) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(bucket_bytes(20 * kMiB, 25 * kMiB), 2 * kMiB);
  EXPECT_EQ(bucket_bytes(3 * kMiB, 25 * kMiB), kMiB);
  EXPECT_EQ(bucket_bytes(1000 * kMiB, 25 * kMiB), 25 * kMiB);
  EXPECT_EQ(bucket_bytes(20 * kMiB, 300), 300) << "a limit is a limit";
}

TEST(ReduceTimeline, OtherEventsAndDamagedOnesHoldNone) {
  FieldList fields = timeline_fields(example());
  EXPECT_FALSE(timeline_of({"", "rank.lost", fields}));
  for (const char* text : {"1:2", "1:2:x", "1:5:2", "-1:2:3", "a b"}) {
    FieldList damaged = fields;
    for (auto& [name, value] : damaged)
      if (name == "buckets") value = std::string(text);
    EXPECT_FALSE(timeline_of({"", kReduceTimelineEvent, damaged})) << text;
  }
  fields.erase(fields.begin());
  EXPECT_FALSE(timeline_of({"", kReduceTimelineEvent, fields})) << "no step";
}

}  // namespace
}  // namespace redline::measure
