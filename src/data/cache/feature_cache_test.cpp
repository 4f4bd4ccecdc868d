#include "data/cache/feature_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "core/file_ops.h"
#include "data/testing/engine.h"
#include "data/workers/collate.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;
namespace te = testing_engine;

class FeatureCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("feature_cache_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::vector<fs::path> shards() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.path().extension() == ".rlc") files.push_back(entry.path());
    }
    return files;
  }
  fs::path folder_;
};

void expect_same(const Sample& a, const Sample& b) {
  ASSERT_EQ(a.fields.size(), b.fields.size());
  for (size_t f = 0; f < a.fields.size(); ++f) {
    EXPECT_EQ(a.fields[f].first, b.fields[f].first);
    EXPECT_EQ(a.fields[f].second.dtype(), b.fields[f].second.dtype());
    EXPECT_EQ(a.fields[f].second.shape(), b.fields[f].second.shape());
    EXPECT_EQ(0, std::memcmp(a.fields[f].second.data(), b.fields[f].second.data(), a.fields[f].second.num_bytes()));
  }
}

TEST_F(FeatureCacheTest, MemoryStopsAtItsLimitAndSharesArrays) {
  auto cache = make_memory_cache(10'000);
  const Sample sample = te::numbered_sample(1, 500);  // 2,000 bytes and a little
  for (uint64_t key = 0; key < 10; ++key) cache->insert(key, sample);
  EXPECT_LE(cache->num_bytes(), 10'000);
  int found = 0;
  for (uint64_t key = 0; key < 10; ++key) {
    if (const auto hit = cache->find(key)) {
      ++found;
      EXPECT_EQ(hit->find("x")->data(), sample.find("x")->data());
    }
  }
  EXPECT_EQ(found, 4);
  EXPECT_EQ(cache->hits(), 4);
  EXPECT_EQ(cache->misses(), 6);
}

TEST_F(FeatureCacheTest, DiskSurvivesARestartAndOtherSettingsSeeNothing) {
  {
    auto cache = make_disk_cache(folder_, 1, 1 << 20);
    for (int64_t i = 0; i < 100; ++i)
      cache->insert(static_cast<uint64_t>(i), te::numbered_sample(i, te::numbered_length(i)));
  }
  auto cache = make_disk_cache(folder_, 1, 1 << 20);
  for (int64_t i = 0; i < 100; ++i) {
    const auto found = cache->find(static_cast<uint64_t>(i));
    ASSERT_TRUE(found);
    expect_same(*found, te::numbered_sample(i, te::numbered_length(i)));
  }
  auto other = make_disk_cache(folder_, 2, 1 << 20);
  EXPECT_FALSE(other->find(5)) << "another setting never reads a stale entry";
}

TEST_F(FeatureCacheTest, ASecondOpenerReadsButDoesNotWrite) {
  auto first = make_disk_cache(folder_, 1, 1 << 20);
  first->insert(1, te::numbered_sample(1, 10));
  auto second = make_disk_cache(folder_, 1, 1 << 20);
  EXPECT_TRUE(second->find(1));
  second->insert(2, te::numbered_sample(2, 10));
  EXPECT_FALSE(second->find(2));
}

TEST_F(FeatureCacheTest, DiskLimitHolds) {
  auto cache = make_disk_cache(folder_, 1, 5000);
  for (uint64_t key = 0; key < 100; ++key) cache->insert(key, te::numbered_sample(1, 100));
  EXPECT_LT(cache->num_bytes(), 6000);
}

// Every prefix and every flipped byte of a shard: entries come back whole or not at all.
TEST_F(FeatureCacheTest, DamageIsFoundAndMadeGoodAgain) {
  const Sample sample = te::numbered_sample(3, 7);
  { make_disk_cache(folder_, 1, 1 << 20)->insert(16, sample); }
  const fs::path shard = [&] {
    for (const auto& path : shards()) {
      if (fs::file_size(path) > 0) return path;
    }
    return fs::path();
  }();
  const std::string whole = read_file(shard);
  const auto reopen = [&](const std::string& bytes) {
    std::ofstream(shard, std::ios::binary | std::ios::trunc) << bytes;
    auto cache = make_disk_cache(folder_, 1, 1 << 20);
    if (const auto found = cache->find(16)) {
      expect_same(*found, sample);
      return true;
    }
    cache->insert(16, sample);
    EXPECT_TRUE(cache->find(16));
    return false;
  };
  EXPECT_TRUE(reopen(whole));
  for (size_t cut = 0; cut < whole.size(); ++cut) EXPECT_FALSE(reopen(whole.substr(0, cut))) << cut;
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x40);
    EXPECT_FALSE(reopen(bytes)) << "flip at " << at;
  }
  EXPECT_TRUE(reopen(whole + "torn tail"));
}

TEST_F(FeatureCacheTest, ThreadsShareIt) {
  auto cache = make_disk_cache(folder_, 1, 1 << 22);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t key = (i * 7 + t) % 100;
        if (const auto found = cache->find(static_cast<uint64_t>(key))) {
          if (found->find("label")->as<int64_t>()[0] != key) ++wrong;
        } else {
          cache->insert(static_cast<uint64_t>(key), te::numbered_sample(key, 20));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(cache->hits() + cache->misses(), 800);
}

TEST(SerializedSample, RefusesWhatIsNotOne) {
  const std::string bytes = serialize_sample(te::numbered_sample(1, 5));
  ASSERT_TRUE(deserialize_sample(bytes));
  EXPECT_FALSE(deserialize_sample(bytes + "x"));
  for (size_t cut = 0; cut < bytes.size(); ++cut)
    EXPECT_FALSE(deserialize_sample(std::string_view(bytes).substr(0, cut)));
  std::string huge = bytes;
  for (size_t at = 0; at + 8 <= huge.size(); ++at) {  // an extent that would not fit memory is not believed
    std::string changed = huge;
    std::memset(changed.data() + at, 0x7f, 8);
    deserialize_sample(changed);
  }
}

}  // namespace
}  // namespace redline::data
