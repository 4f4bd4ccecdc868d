#include "data/workers/bad_samples.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
namespace te = testing_engine;

class BadSamplesTest : public testing::Test {
 protected:
  void SetUp() override {
    file_ = fs::path(testing::TempDir()) / ("bad_samples_" + std::to_string(::getpid()) + ".jsonl");
    fs::remove(file_);
  }
  void TearDown() override { fs::remove(file_); }
  std::vector<nlohmann::json> lines() const {
    std::vector<nlohmann::json> all;
    std::ifstream in(file_);
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }
  fs::path file_;
};

BadEvent event(int64_t sample) { return {sample, "clip_" + std::to_string(sample) + ".wav", "truncated."}; }

TEST_F(BadSamplesTest, WritesEachSampleOnceWithReasonEpochAndStep) {
  {
    BadSampleLog log(file_, 1000, {});
    log.row({event(7)}, 0, 3);
    log.row({}, 0, 3);
    log.row({event(7), event(9)}, 1, 0);
    EXPECT_EQ(log.num_bad(), 3);
    EXPECT_EQ(log.num_distinct(), 2);
  }
  BadSampleLog again(file_, 1000, {});  // a resumed run
  again.row({event(9)}, 2, 5);
  const auto all = lines();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["sample"], 7);
  EXPECT_EQ(all[0]["name"], "clip_7.wav");
  EXPECT_EQ(all[0]["reason"], "truncated.");
  EXPECT_EQ(all[0]["step"], 3);
  EXPECT_EQ(all[1]["epoch"], 1);
}

TEST_F(BadSamplesTest, StopsOverTheFraction) {
  BadSampleLog log({}, 100, {.max_fraction = 0.03});
  log.good_rows(50);
  for (int64_t i = 0; i < 3; ++i) EXPECT_NO_THROW(log.row({event(i)}, 0, 0));
  EXPECT_NO_THROW(log.row({event(2)}, 0, 0)) << "the same sample again is not one more";
  EXPECT_THROW(log.row({event(3)}, 0, 0), DataError);
  BadSampleLog none({}, 100, {.max_fraction = 0.0});
  EXPECT_THROW(none.row({event(1)}, 0, 0), DataError);
  BadSampleLog one({}, 5, {.max_fraction = 0.05});
  EXPECT_NO_THROW(one.row({event(1)}, 0, 0)) << "one of a tiny set is allowed";
  EXPECT_THROW(one.row({event(2)}, 0, 0), DataError);
}

TEST_F(BadSamplesTest, JudgesWhatWasDeliveredInALargeSet) {
  BadSampleLog log({}, 1'000'000, {.max_fraction = 0.05});
  log.good_rows(950);
  int64_t next = 0;
  EXPECT_THROW(
      for (int i = 0; i < 200; ++i) {
        log.row({event(next++)}, 0, 0);
        log.good_rows(1);
      },
      DataError);
  EXPECT_GT(next, 50);
}

TEST_F(BadSamplesTest, StopsAfterAHundredInARow) {
  BadSampleLog log({}, 1'000'000, {.max_fraction = 1.0});
  for (int64_t i = 0; i < 99; ++i) log.row({event(i)}, 0, 0);
  log.good_rows(1);
  for (int64_t i = 0; i < 99; ++i) log.row({event(i)}, 0, 0);
  EXPECT_THROW(log.row({event(500)}, 0, 0), DataError);
}

TEST_F(BadSamplesTest, LinesThatCannotBeWrittenWait) {
  const std::filesystem::path folder = file_.string() + ".folder";
  {
    BadSampleLog log(folder / "bad.jsonl", 1000, {});
    log.row({event(1)}, 0, 0);
    log.row({event(2)}, 0, 1);
    EXPECT_EQ(measure::retry_kept_writes().waiting, 2);
    EXPECT_EQ(log.num_distinct(), 2);
    std::filesystem::create_directories(folder);
    EXPECT_FALSE(measure::retry_kept_writes().any());
  }
  BadSampleLog again(folder / "bad.jsonl", 1000, {});
  EXPECT_EQ(again.num_distinct(), 2);
  std::filesystem::remove_all(folder);
}

// Through the loader: the same file, the same contents and the same substitutes for every number of workers.
TEST_F(BadSamplesTest, LoaderReplacesThemTheSameWayForAnyWorkers) {
  const auto is_bad = [](int64_t i) { return i % 41 == 3; };
  auto source =
      std::make_shared<te::HookedSource>(te::numbered_source(1000), [&](int64_t i) -> std::optional<BadSample> {
        if (is_bad(i)) return BadSample{"row " + std::to_string(i), "bad on purpose."};
        return std::nullopt;
      });
  std::vector<std::pair<uint64_t, std::vector<nlohmann::json>>> results;
  for (int workers : {0, 1, 2, 4, 8}) {
    fs::remove(file_);
    te::LoaderOptions options;
    options.jitter = options.mix = true;
    options.loader.num_workers = workers;
    options.loader.bad_samples_file = file_;
    auto loader = te::make_loader(source, options);
    uint64_t hash = 1;
    int64_t rows = 0, substitutes = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      while (auto batch = loader->next()) {
        hash = te::batch_hash(*batch, hash);
        rows += static_cast<int64_t>(batch->sample_ids.size());
        substitutes += batch->num_bad;
        for (int64_t id : batch->sample_ids) EXPECT_FALSE(is_bad(id));
      }
    }
    EXPECT_EQ(rows, 2000) << "batches keep their size";
    EXPECT_EQ(substitutes, 50);
    results.emplace_back(hash, lines());
  }
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
  std::set<int64_t> reported;
  for (const auto& line : results[0].second) reported.insert(line["sample"].get<int64_t>());
  EXPECT_EQ(reported.size(), 25u);
  EXPECT_EQ(results[0].second.size(), 25u);
  for (int64_t id : reported) EXPECT_TRUE(is_bad(id));
}

TEST_F(BadSamplesTest, ABrokenSetStopsTheRun) {
  auto source = std::make_shared<te::HookedSource>(te::numbered_source(50), [](int64_t i) -> std::optional<BadSample> {
    return BadSample{"row " + std::to_string(i), "gone."};
  });
  for (int workers : {0, 3}) {
    te::LoaderOptions options;
    options.loader.num_workers = workers;
    auto loader = te::make_loader(source, options);
    EXPECT_THROW(loader->next(), DataError);
  }
}

}  // namespace
}  // namespace redline::data
