// Trials that take turns, with real runs of the example task: what a block answers, what a failure says, what is warm
// before it counts.
#include "tune/trials/trial_pool.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/own_folder.h"
#include "device/memory.h"
#include "train/testing/example_task.h"

namespace redline::tune {
namespace {

const Setting kWorkers = {{"model.train_ds.num_workers", "1"}}, kRows = {{"model.train_ds.micro_batch_size", "2"}},
              kCompiled = {{"trainer.compile", "true"}}, kNonsense = {{"trainer.precision", "nonsense"}};

class Pool : public ::testing::Test {
 protected:
  Pool() : jobs_{registry_, {}, {}} {
    example::register_curve(registry_);
    jobs_.source.tuned = {"task=curve",
                          "model.train_ds.batch_size=8",
                          "model.train_ds.num_workers=0",
                          "trainer.accumulate_grad_batches=2",
                          "trainer.max_steps=100000",
                          "trainer.intra_op_threads=1"};
    jobs_.machine.allowed_cpus = jobs_.machine.logical_cpus = 2;
    options_.turn_seconds = 0.02;
    options_.journal = std::filesystem::path(testing::TempDir()) / "trial_pool_test.running";
    std::filesystem::remove(options_.journal);
  }
  ~Pool() override { device::memory::set_limit(0); }

  std::unique_ptr<TrialPool> make_pool() {
    auto pool = std::make_unique<TrialPool>(jobs_, options_);
    pool->set_reference({100, 16, 0, {}});
    return pool;
  }

  task::Registry registry_;
  JobSource jobs_;
  PoolOptions options_;
};

TEST_F(Pool, ABlockTimesBothAndLeavesNoJournal) {
  const auto pool = make_pool();
  const TrialPool::Block block = pool->run_block({}, kWorkers, 0);
  ASSERT_TRUE(block.a && block.b) << block.failure;
  EXPECT_GT(*block.a, 0);
  EXPECT_GT(*block.b, 0);
  EXPECT_FALSE(std::filesystem::exists(options_.journal));
}

TEST_F(Pool, AFailureIsSaidAndNotTriedAgain) {
  const auto pool = make_pool();
  const TrialPool::Block block = pool->run_block({}, kNonsense, 0);
  EXPECT_FALSE(block.a || block.b);
  EXPECT_NE(block.failure.find("nonsense"), std::string::npos) << block.failure;
  EXPECT_EQ(pool->failure_of(kNonsense), block.failure);
  EXPECT_FALSE(pool->failure_of({}).has_value());
  EXPECT_TRUE(pool->run_block({}, kWorkers, 0).b.has_value());  // the pool goes on
}

// A step that cannot be compiled here is not raced against itself under another name.
TEST_F(Pool, ACompiledStepThatIsNotToBeHadIsAFailure) {
  const OwnFolder cache = OwnFolder::temporary("pool-test");
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  ::setenv("REDLINE_PYTHON", "/nonexistent/python", 1);
  const auto pool = make_pool();
  const TrialPool::Block block = pool->run_block({}, kCompiled, 0);
  ::unsetenv("REDLINE_PYTHON");
  EXPECT_FALSE(block.b);
  EXPECT_NE(block.failure.find("its step is not compiled: Cannot start"), std::string::npos) << block.failure;
  EXPECT_EQ(pool->compile_seconds(kCompiled), 0);
}

// The compilation is a cost of its own and no part of a turn's time, whenever a shape was compiled.
TEST_F(Pool, CompilingIsCountedApartFromTheSpeed) {
  const OwnFolder cache = OwnFolder::temporary("pool-test");
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  jobs_.source.tuned.emplace_back("trainer.compile_packages=2");
  const auto pool = make_pool();
  for (int block = 0; block < 4; ++block) {
    const TrialPool::Block result = pool->run_block({}, kCompiled, block);
    ASSERT_TRUE(result.a && result.b) << result.failure;
    EXPECT_LT(*result.b, 0.05);  // of a sample: microseconds, where compiling takes seconds
  }
  EXPECT_GT(pool->compile_seconds(kCompiled), 1);
  EXPECT_EQ(pool->compile_seconds({}), 0);
  EXPECT_EQ(make_pool()->compile_seconds(kCompiled), 0);
}

TEST_F(Pool, AJobThatItselfNoLongerRunsEndsTheSearch) {
  const auto pool = make_pool();
  jobs_.source.tuned.emplace_back("trainer.precision=nonsense");
  EXPECT_ANY_THROW(pool->run_block({}, kWorkers, 0));
  EXPECT_FALSE(pool->failure_of({}).has_value());
  EXPECT_FALSE(pool->failure_of(kWorkers).has_value());
}

TEST_F(Pool, TheFirstOfASizeIsWarmBeforeItCounts) {
  const auto pool = make_pool();
  const auto steps_made = [&](const Setting& setting) { return pool->acquire(setting).run(1).rows.at(0).step; };
  const int64_t reference = steps_made({}), same_size = steps_made(kWorkers), smaller = steps_made(kRows);
  EXPECT_GT(reference, 10);  // 0.16 s of steps that take far less than a millisecond each
  EXPECT_LE(same_size, 4);
  EXPECT_GT(smaller, 10);
}

TEST_F(Pool, BothSeeTheSameSamplesWhateverTheirBatch) {
  const auto pool = make_pool();
  const Setting larger = {{"model.train_ds.batch_size", "32"}, {"model.train_ds.micro_batch_size", "32"}};
  for (int block = 0; block < 3; ++block) {
    const TrialPool::Block result = pool->run_block({}, larger, block);
    ASSERT_TRUE(result.a && result.b) << result.failure;
    const auto reference = pool->acquire({}).place(), other = pool->acquire(larger).place();
    EXPECT_EQ(reference.epoch, other.epoch);
    EXPECT_EQ(reference.step * 16, other.step * 64);
    EXPECT_GT(reference.epoch + reference.step, 0);
  }
}

TEST_F(Pool, AJournalNamesTheSettingWhileItLivesButNeverTheReference) {
  {
    const TrialPool::Journal journal(options_.journal, kWorkers);
    std::string text;
    std::getline(std::ifstream(options_.journal), text);
    EXPECT_EQ(text, setting_text(kWorkers));
    const TrialPool::Journal none({}, kWorkers);
  }
  EXPECT_FALSE(std::filesystem::exists(options_.journal));
  const TrialPool::Journal reference(options_.journal, {});
  EXPECT_FALSE(std::filesystem::exists(options_.journal));
}

TEST_F(Pool, TheUsersLimitIsEachJobsOwn) {
  int64_t peak = 0;
  {
    const auto free = make_pool();
    peak = free->probe({});
    ASSERT_GT(peak, 0);
    EXPECT_LT(free->probe(kRows), peak);
  }
  options_.memory_limit = peak + peak / 8;
  options_.limit_is_the_users = true;
  const auto pool = make_pool();
  // Two that fit alone fit beside each other; a larger one does not.
  const TrialPool::Block both = pool->run_block({}, kRows, 0);
  EXPECT_TRUE(both.a && both.b) << both.failure;
  const TrialPool::Block larger = pool->run_block({}, {{"model.train_ds.micro_batch_size", "16"}}, 0);
  EXPECT_FALSE(larger.b.has_value());
  EXPECT_NE(larger.failure.find("limit"), std::string::npos) << larger.failure;
  const TrialPool::LargestBatch largest = pool->largest_batch(5);
  EXPECT_EQ(largest.rows, 8);
  EXPECT_LE(largest.peak_bytes, options_.memory_limit);
  EXPECT_FALSE(largest.time_ended);
}

}  // namespace
}  // namespace redline::tune
