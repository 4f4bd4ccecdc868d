#include "task/keyed_random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <set>

#include "core/error.h"

namespace redline::task {
namespace {

TEST(KeyedRandom, VectorWordsEqualThePlainReference) {
  const PhiloxKey key = operation_key(7, 123, "layers.3.dropout");
  for (uint64_t first : {uint64_t{0}, uint64_t{3}, (uint64_t{1} << 32) - 2, uint64_t{1} << 60}) {
    for (int64_t blocks : {1, 2, 3, 4, 5, 16, 33}) {
      std::vector<uint32_t> plain(static_cast<size_t>(blocks) * 4), vector(plain.size());
      philox_words(key, 0xABCDEF0123456789u, first, blocks, plain.data(), RandomPath::kPlain);
      philox_words(key, 0xABCDEF0123456789u, first, blocks, vector.data(), best_random_path());
      EXPECT_EQ(plain, vector) << first << " " << blocks;
    }
  }
}

TEST(KeyedRandom, EveryPartOfTheIdentityMatters) {
  std::set<std::pair<uint32_t, uint32_t>> keys;
  for (uint64_t seed : {0, 1})
    for (int64_t step : {0, 1, 2})
      for (const char* operation : {"a", "b"}) {
        const PhiloxKey key = operation_key(seed, step, operation);
        keys.insert({key.lo, key.hi});
      }
  EXPECT_EQ(keys.size(), 12u);
}

TEST(KeyedRandom, ARunIsAPieceOfTheWhole) {
  const PhiloxKey key = operation_key(1, 2, "noise");
  std::vector<float> whole(1000), piece(100);
  for (auto draw : {uniform_run, normal_run}) {
    draw(key, 9, 0, 1000, whole.data(), best_random_path());
    draw(key, 9, 520, 100, piece.data(), best_random_path());
    for (size_t i = 0; i < 100; ++i) EXPECT_EQ(piece[i], whole[520 + i]);
    std::vector<float> plain(1000);
    draw(key, 9, 0, 1000, plain.data(), RandomPath::kPlain);
    EXPECT_EQ(plain, whole);
  }
}

TEST(KeyedRandom, UniformsFillTheUnitIntervalEvenly) {
  std::vector<float> values(1 << 20);
  uniform_run(operation_key(3, 0, "u"), 0, 0, static_cast<int64_t>(values.size()), values.data(), best_random_path());
  std::vector<int64_t> bins(64);
  for (float v : values) {
    ASSERT_GE(v, 0.0f);
    ASSERT_LT(v, 1.0f);
    ++bins[static_cast<size_t>(v * 64)];
  }
  double chi2 = 0;
  const double expected = static_cast<double>(values.size()) / 64;
  for (int64_t n : bins) chi2 += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
  EXPECT_LT(chi2, 120.0);  // 63 degrees of freedom: p < 1e-5 beyond
}

TEST(KeyedRandom, NormalsMatchLibmAndTheirMoments) {
  const PhiloxKey key = operation_key(4, 5, "n");
  constexpr size_t kCount = 1 << 20;
  std::vector<float> values(kCount);
  normal_run(key, 77, 0, kCount, values.data(), best_random_path());
  std::vector<uint32_t> words(kCount);
  philox_words(key, 77, 0, kCount / 4, words.data(), RandomPath::kPlain);
  double sum = 0, square = 0, fourth = 0, worst = 0;
  for (size_t i = 0; i < kCount; i += 2) {
    const double u = (static_cast<double>(words[i] >> 8) + 1) * 0x1p-24,
                 v = static_cast<double>(words[i + 1] >> 8) * 0x1p-24;
    const double radius = std::sqrt(-2 * std::log(u));
    worst = std::max({worst, std::abs(values[i] - radius * std::cos(2 * M_PI * v)),
                      std::abs(values[i + 1] - radius * std::sin(2 * M_PI * v))});
    for (double x : {static_cast<double>(values[i]), static_cast<double>(values[i + 1])}) {
      sum += x;
      square += x * x;
      fourth += x * x * x * x;
    }
  }
  EXPECT_LT(worst, 3e-6);
  const double n = kCount;
  EXPECT_NEAR(sum / n, 0.0, 5e-3);
  EXPECT_NEAR(square / n, 1.0, 8e-3);
  EXPECT_NEAR(fourth / n, 3.0, 5e-2);
}

// The plain meaning of a layout: the key of every element, one by one.
std::vector<uint64_t> keys_by_definition(const std::vector<int64_t>& shape, const std::set<size_t>& padded) {
  std::vector<uint64_t> strides(shape.size(), 1);
  for (size_t i = shape.size() - 1; i-- > 1;)
    strides[i] = strides[i + 1] * static_cast<uint64_t>(padded.count(i + 1) ? KeyLayout::kPaddedExtent : shape[i + 1]);
  int64_t total = 1;
  for (size_t i = 1; i < shape.size(); ++i) total *= shape[i];
  std::vector<uint64_t> keys;
  for (int64_t flat = 0; flat < total; ++flat) {
    uint64_t key = 0;
    int64_t rest = flat;
    for (size_t i = shape.size(); i-- > 1;) {
      key += static_cast<uint64_t>(rest % shape[i]) * strides[i];
      rest /= shape[i];
    }
    keys.push_back(key);
  }
  return keys;
}

TEST(KeyLayout, RunsCoverTheDefinition) {
  struct Case {
    std::vector<int64_t> shape, padded;
  };
  for (const Case& c : std::vector<Case>{{{2, 5, 6}, {}},
                                         {{2, 5, 6}, {1}},
                                         {{2, 5, 6}, {2}},
                                         {{2, 3, 4, 5}, {2, 3}},
                                         {{2, 3, 4, 5}, {2}},
                                         {{2, 3, 4, 5}, {-1}},
                                         {{4}, {}},
                                         {{1, 7}, {1}}}) {
    std::set<size_t> padded;
    for (int64_t d : c.padded) padded.insert(static_cast<size_t>(d < 0 ? d + static_cast<int64_t>(c.shape.size()) : d));
    const KeyLayout layout(c.shape, c.padded);
    std::vector<uint64_t> keys;
    for (int64_t run = 0; run < layout.runs_per_row(); ++run) {
      EXPECT_EQ(layout.run_key(run) % 8, 0u);
      for (int64_t i = 0; i < layout.run_length(); ++i) keys.push_back(layout.run_key(run) + static_cast<uint64_t>(i));
    }
    EXPECT_EQ(keys, keys_by_definition(c.shape, padded));
    EXPECT_EQ(layout.rows(), c.shape[0]);
  }
}

TEST(KeyLayout, AttentionWeightsHaveTheKeysOfTheirTensor) {
  const KeyLayout layout({2, 3, 4, 5}, {2, 3});
  for (int64_t head = 0; head < 3; ++head)
    for (int64_t query = 0; query < 4; ++query)
      EXPECT_EQ(attention_element(head, query), layout.run_key(head * 4 + query));
}

TEST(KeyLayout, RefusesWhatCannotBeKeyed) {
  EXPECT_THROW(KeyLayout({}, {}), InternalError);
  EXPECT_THROW(KeyLayout({2, 3}, {0}), InternalError);
  EXPECT_THROW(KeyLayout({2, 3}, {2}), InternalError);
  EXPECT_THROW(KeyLayout({2, 3, KeyLayout::kPaddedExtent + 1}, {2}), InternalError);
}

}  // namespace
}  // namespace redline::task
