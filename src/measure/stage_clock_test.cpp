#include "measure/stage_clock.h"

#include <gtest/gtest.h>

#include <thread>

namespace redline::measure {
namespace {

TEST(StageClock, AddsUpOverWorkers) {
  StageClock clock(3);
  std::vector<std::thread> workers;
  for (int w = 0; w < 3; ++w) {
    workers.emplace_back([&clock, w] {
      StageClock::Slot& slot = clock.slot(w);
      for (int i = 0; i < 10; ++i) {
        const StageScope scope(slot, Stage::Decode);
        const int64_t end = now_ns() + 20'000;
        while (now_ns() < end) {
        }
        slot.samples.fetch_add(1, std::memory_order_relaxed);
        slot.bytes_read.fetch_add(100, std::memory_order_relaxed);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  const StageTotals totals = clock.totals();
  EXPECT_GE(totals.ns[static_cast<size_t>(Stage::Decode)], 3 * 10 * 20'000);
  EXPECT_EQ(totals.ns[static_cast<size_t>(Stage::Read)], 0);
  EXPECT_EQ(totals.samples, 30);
  EXPECT_EQ(totals.bytes_read, 3000);
}

TEST(StageClock, AnInnerStageIsCountedOnceAndForItself) {
  StageClock clock(1);
  SpanLog log;
  clock.trace_to(&log);
  const auto spin = [](int64_t ns) {
    const int64_t end = now_ns() + ns;
    while (now_ns() < end) {
    }
  };
  const int64_t begin = now_ns();
  {
    const StageScope transform(clock.slot(0), Stage::Transform);
    spin(1'000'000);
    {
      const InnerStage decode(Stage::Decode);
      spin(3'000'000);
    }
  }
  const int64_t whole = now_ns() - begin;
  { const InnerStage nowhere(Stage::Collate); }  // no scope is open
  {
    const StageScope read(clock.slot(0), Stage::Read);
    const InnerStage same(Stage::Read);  // the scope counts it already
  }
  clock.trace_to(nullptr);
  const StageTotals totals = clock.totals();
  const int64_t transform = totals.ns[static_cast<size_t>(Stage::Transform)],
                decode = totals.ns[static_cast<size_t>(Stage::Decode)];
  EXPECT_GE(decode, 3'000'000);
  EXPECT_GE(transform, 1'000'000);
  EXPECT_LE(transform + decode, whole);
  EXPECT_EQ(totals.ns[static_cast<size_t>(Stage::Collate)], 0);
  EXPECT_GT(totals.ns[static_cast<size_t>(Stage::Read)], 0);
  EXPECT_EQ(log.take().size(), 3U);  // decode within transform, and read
}

TEST(StageClock, SlotsDoNotShareCacheLines) {
  StageClock clock(2);
  const auto a = reinterpret_cast<uintptr_t>(&clock.slot(0)), b = reinterpret_cast<uintptr_t>(&clock.slot(1));
  EXPECT_EQ(a % 64, 0U);
  EXPECT_GE(b - a, sizeof(StageClock::Slot));
  EXPECT_EQ((b - a) % 64, 0U);
}

TEST(StageClock, NoWorkerMeansTheMainThreadHasASlot) {
  StageClock clock(0);
  { const StageScope scope(clock.slot(0), Stage::Collate); }
  EXPECT_EQ(clock.workers(), 1);
  EXPECT_GT(clock.totals().ns[static_cast<size_t>(Stage::Collate)], 0);
}

TEST(StageClock, TracesWithTheWorkersNumber) {
  StageClock clock(2);
  SpanLog log;
  { const StageScope untraced(clock.slot(1), Stage::Read); }
  clock.trace_to(&log);
  { const StageScope traced(clock.slot(1), Stage::Read); }
  clock.trace_to(nullptr);
  { const StageScope untraced(clock.slot(1), Stage::Read); }
  const auto spans = log.take();
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].lane, 2);
  EXPECT_TRUE(spans[0].is_stage);
  EXPECT_LT(spans[0].begin_ns, spans[0].end_ns);
}

}  // namespace
}  // namespace redline::measure
