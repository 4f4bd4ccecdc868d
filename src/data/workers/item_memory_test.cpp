#include "data/workers/item_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "core/error.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace te = testing_engine;

constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(ItemMemory, OneSampleMayTakeHalfOfTheBufferButNeverLessThan256MiB) {
  EXPECT_EQ(item_limit_bytes(1), 256 * kMiB);
  EXPECT_EQ(item_limit_bytes(int64_t{1} << 30), 512 * kMiB);
  EXPECT_EQ(item_limit_bytes(int64_t{4} << 30), 2048 * kMiB);
  EXPECT_EQ(item_limit_bytes(INT64_MAX), static_cast<uint64_t>(INT64_MAX) / 2);
}

TEST(ItemMemory, ChargesAddUpToTheLimitAndStartAnewWithTheNextSample) {
  MemoryBudget budget(int64_t{1} << 30, 2);
  for (int sample = 0; sample < 3; ++sample) {
    const ItemMemory memory(&budget);
    EXPECT_TRUE(charge_memory(300 * kMiB));
    EXPECT_TRUE(charge_memory(212 * kMiB));
    EXPECT_FALSE(charge_memory(1)) << "one byte more than half of the buffer";
    EXPECT_NE(too_large_text().find("512"), std::string::npos) << too_large_text();
    EXPECT_NE(too_large_text().find("max_buffer_bytes"), std::string::npos);
  }
  EXPECT_TRUE(charge_memory(512 * kMiB)) << "outside a sample only single wishes are limited";
  EXPECT_FALSE(charge_memory(513 * kMiB));
  EXPECT_FALSE(charge_memory(UINT64_MAX));
}

TEST(ItemMemory, SmallSamplesNeverWaitAndLargeOnesWaitWithEmptyHands) {
  MemoryBudget budget(int64_t{1} << 30, 2);
  ASSERT_TRUE(budget.try_take(768 * kMiB)) << "all of it is in use";
  {
    const ItemMemory small(&budget);
    EXPECT_TRUE(charge_memory(budget.free_bytes()));
    EXPECT_THROW(charge_memory(1), MemoryBusy);
  }
  budget.give(400 * kMiB);
  const ItemMemory large(&budget);
  EXPECT_TRUE(charge_memory(300 * kMiB));
}

// Eight workers, each with samples of up to half of the budget: they finish, and at no time is more in use than there
// is.
TEST(ItemMemory, WorkersThatMeetGiantsShareTheBudgetWithoutWaitingForEver) {
  constexpr int kWorkers = 8;
  MemoryBudget budget(int64_t{1} << 30, kWorkers);
  std::atomic<uint64_t> in_use = 0, most = 0;
  std::atomic<int> done = 0;
  const auto work = [&](int worker) {
    for (int i = 0; i < 50; ++i) {
      for (uint64_t lease = 0;;) {
        uint64_t mine = 0;
        const ItemMemory memory(&budget, lease);
        try {
          for (int piece = 0; piece < 5; ++piece) {
            const uint64_t bytes = (40 + static_cast<uint64_t>((worker * 7 + i * 3 + piece) % 60)) * kMiB;
            ASSERT_TRUE(charge_memory(bytes));
            mine += bytes;
            const uint64_t now = in_use += bytes;
            for (uint64_t seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
            }
          }
          in_use -= mine;
          ++done;
          break;
        } catch (const MemoryBusy& busy) {
          in_use -= mine;
          EXPECT_GT(busy.lease, lease) << "each wait is for more, so it ends";
          lease = busy.lease;
        }
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int w = 0; w < kWorkers; ++w) threads.emplace_back(work, w);
  threads.clear();
  EXPECT_EQ(done, kWorkers * 50);
  EXPECT_LE(most, 768 * kMiB + kWorkers * budget.free_bytes());
  EXPECT_GT(most, 400 * kMiB) << "more than one at a time";
}

// Through the loader: giants in several workers give the same batches as without a budget, and one that is too large is
// a bad sample with a name.
TEST(ItemMemory, TheLoaderReadsGiantsAgainAndNamesWhatIsTooLarge) {
  class Giants : public SampleTransform {
   public:
    void apply(Sample& sample, const DrawKey&) const override {
      const uint64_t bytes = sample.id == 5 ? 600 * kMiB : 400 * kMiB;
      if (!charge_memory(bytes)) throw DataError(too_large_text());
    }
    std::string fingerprint() const override { return "giants"; }
    bool random() const override { return false; }
  };
  std::vector<int64_t> first;
  for (int workers : {0, 6}) {
    te::LoaderOptions options;
    options.loader.num_workers = workers;
    options.loader.prefetch_batches = 12;
    options.loader.bad_limits.max_fraction = 1.0;
    options.transform = std::make_shared<Giants>();
    options.budget = std::make_shared<MemoryBudget>(int64_t{1} << 30, workers);
    const auto made = te::make_loader(te::numbered_source(24), options);
    OrderedLoader& loader = *made;
    std::vector<int64_t> ids;
    while (auto batch = loader.next()) ids.insert(ids.end(), batch->sample_ids.begin(), batch->sample_ids.end());
    EXPECT_EQ(ids.size(), 24u);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 5), 0);
    EXPECT_EQ(loader.stats().bad_samples, 1);
    if (workers == 0)
      first = ids;
    else
      EXPECT_EQ(ids, first);
  }
}

}  // namespace
}  // namespace redline::data
