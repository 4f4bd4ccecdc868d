// Known answers are the philox4x32-10 lines of Random123's kat_vectors.
#include "core/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>

#include "core/error.h"

namespace redline {
namespace {

TEST(Philox, KnownAnswersOfRandom123) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32_10({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, MixKeyDependsOnOrderAndOnEveryBit) {
  EXPECT_NE(mix_key(1, 2), mix_key(2, 1));
  std::set<uint64_t> seen;
  for (int bit = 0; bit < 64; ++bit) {
    seen.insert(mix_key(uint64_t{1} << bit, 7));
    seen.insert(mix_key(7, uint64_t{1} << bit));
  }
  EXPECT_EQ(seen.size(), 128u);
}

// These values are in every run's dropout masks; a change here changes every loss.
TEST(Philox, KeysOfNamesAreFrozen) {
  EXPECT_EQ(name_key(""), 0x87649c0d2443edcbu);
  EXPECT_EQ(name_key("redline"), 0x7db3d2d769c8e896u);
  EXPECT_EQ(name_key(std::string(1000, 'x')), 0x85abc17873ffbe89u);
  EXPECT_NE(name_key("abcdefghijklmnopABCDEFGHIJKLMNOP"), name_key("ABCDEFGHIJKLMNOPabcdefghijklmnop"));
}

TEST(KeyedStream, SameIdentitySameDrawsOtherIdentityOthers) {
  KeyedStream a(1, 2, 3, 4), b(1, 2, 3, 4);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.next_u32(), b.next_u32());
  std::set<uint64_t> first;
  for (uint64_t seed : {0, 1})
    for (uint64_t epoch : {0, 1})
      for (uint64_t sample : {0, 1})
        for (uint64_t operation : {0, 1}) first.insert(KeyedStream(seed, epoch, sample, operation).next_u64());
  EXPECT_EQ(first.size(), 16u);
}

// The values are part of every checkpoint's meaning: resuming an old run must draw the same numbers.
TEST(KeyedStream, DrawsArePinned) {
  KeyedStream stream(42, 1, 7, 3);
  const uint64_t a = stream.next_u64(), b = stream.next_u64();
  KeyedStream again(42, 1, 7, 3);
  EXPECT_EQ(again.next_u32(), static_cast<uint32_t>(a));
  EXPECT_EQ(again.next_u32(), static_cast<uint32_t>(a >> 32));
  EXPECT_EQ(again.next_u64(), b);
  EXPECT_EQ(mix_key(0, 0), 0xa706dd2f4d197e6fu);
  EXPECT_EQ(a, 0xd58cc4c47c2f3261u);
  EXPECT_EQ(b, 0xbe72dc331965d404u);
}

TEST(KeyedStream, UniformStaysInItsIntervalWithTheRightMean) {
  KeyedStream stream(1, 0, 0, 0);
  double sum = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double u = stream.uniform(-2.0, 4.0);
    ASSERT_GE(u, -2.0);
    ASSERT_LT(u, 4.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100'000, 1.0, 0.03);  // 5 sigma = 5 * 6/sqrt(12)/sqrt(1e5)
}

TEST(KeyedStream, UniformIntIsUnbiasedAndReachesBothEnds) {
  KeyedStream stream(5, 0, 0, 0);
  int counts[7] = {};
  for (int i = 0; i < 70'000; ++i) ++counts[stream.uniform_int(-3, 3) + 3];
  double chi2 = 0;
  for (int count : counts) chi2 += (count - 1e4) * (count - 1e4) / 1e4;
  EXPECT_LT(chi2, 27.9);  // 99.99 % of chi-square with 6 degrees of freedom
  EXPECT_EQ(stream.uniform_int(9, 9), 9);
  stream.uniform_int(INT64_MIN, INT64_MAX);
  EXPECT_THROW(stream.uniform_int(2, 1), InternalError);
}

TEST(KeyedStream, NormalHasUnitMoments) {
  KeyedStream stream(3, 1, 4, 1);
  const int count = 200'000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double x = stream.normal();
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0.0, 0.012);
  EXPECT_NEAR(squares / count, 1.0, 0.016);
  EXPECT_NEAR(fourth / count, 3.0, 0.12);
}

}  // namespace
}  // namespace redline
