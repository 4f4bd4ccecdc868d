#include "data/parquet/parquet_levels.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/philox.h"

namespace redline::data::parquet_rows {
namespace {

// A plain writer of the hybrid encoding: random mixture of runs and packed groups.
std::vector<uint8_t> encode(const std::vector<uint8_t>& levels, int bits, KeyedStream& draw) {
  std::vector<uint8_t> out;
  const auto varint = [&](uint32_t value) {
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<uint8_t>(value | 0x80));
    out.push_back(static_cast<uint8_t>(value));
  };
  size_t at = 0;
  while (at < levels.size()) {
    size_t run = 1;
    while (at + run < levels.size() && levels[at + run] == levels[at]) ++run;
    if (draw.uniform() < 0.5) {
      run = static_cast<size_t>(draw.uniform_int(1, static_cast<int64_t>(run)));
      varint(static_cast<uint32_t>(run << 1));
      out.push_back(levels[at]);
      at += run;
      continue;
    }
    const auto groups = static_cast<size_t>(draw.uniform_int(1, 4));
    varint(static_cast<uint32_t>(groups << 1 | 1));
    std::vector<uint8_t> packed(groups * static_cast<size_t>(bits), 0);
    for (size_t i = 0; i < groups * 8 && at + i < levels.size(); ++i)
      for (size_t b = 0; b < static_cast<size_t>(bits); ++b) {
        const size_t bit = i * static_cast<size_t>(bits) + b;
        packed[bit / 8] = static_cast<uint8_t>(packed[bit / 8] | (levels[at + i] >> b & 1) << (bit % 8));
      }
    out.insert(out.end(), packed.begin(), packed.end());
    at += groups * 8;
  }
  return out;
}

TEST(ParquetLevels, HybridRunsComeBack) {
  KeyedStream draw(1, 0, 0, 0);
  for (int round = 0; round < 300; ++round) {
    const int max_level = static_cast<int>(draw.uniform_int(1, 7));
    std::vector<uint8_t> levels(static_cast<size_t>(draw.uniform_int(1, 400)));
    uint8_t current = 0;
    for (auto& level : levels) {
      if (draw.uniform() < 0.3) current = static_cast<uint8_t>(draw.uniform_int(0, max_level));
      level = current;
    }
    const auto bytes = encode(levels, level_bits(max_level), draw);
    std::vector<uint8_t> got(levels.size());
    decode_levels(bytes, max_level, static_cast<int64_t>(levels.size()), got.data());
    ASSERT_EQ(got, levels) << round;
  }
}

TEST(ParquetLevels, DamageIsRefused) {
  std::vector<uint8_t> out(100);
  const auto decode = [&](std::vector<uint8_t> bytes, int max_level, int64_t count) {
    decode_levels(bytes, max_level, count, out.data());
  };
  EXPECT_THROW(decode({}, 1, 1), DataError);
  EXPECT_THROW(decode({0x02}, 1, 1), DataError);                                // value missing
  EXPECT_THROW(decode({0x00, 0x01}, 1, 1), DataError);                          // empty run
  EXPECT_THROW(decode({0x01, 0x01}, 1, 1), DataError);                          // empty groups
  EXPECT_THROW(decode({0x02, 0x02}, 1, 1), DataError);                          // level above the maximum
  EXPECT_THROW(decode({0x03, 0xFF}, 2, 8), DataError);                          // packed: cut off
  EXPECT_THROW(decode({0x03, 0xFF, 0xFF}, 2, 8), DataError);                    // packed: level 3 of 2
  EXPECT_THROW(decode({0x80, 0x80, 0x80, 0x80, 0x80, 0x01}, 1, 1), DataError);  // header too long
  EXPECT_NO_THROW(decode({0x0A, 0x01}, 1, 5));
}

std::vector<std::string> rows_of(const std::vector<uint8_t>& rep, const std::vector<uint8_t>& def, ListLevels levels,
                                 int64_t rows) {
  ListRows list(levels, rows);
  list.add_page(rep, def);
  list.finish();
  std::vector<std::string> out;
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    const char* problem[] = {"", " null", " null element"};
    out.push_back(std::to_string(list.offsets()[r + 1] - list.offsets()[r]) +
                  (list.problems().empty() ? "" : problem[list.problems()[r]]));
  }
  return out;
}

TEST(ParquetLevels, RowsOfEveryLayout) {
  using Rows = std::vector<std::string>;
  // optional list, optional element: 0 null, 1 empty, 2 null element, 3 value
  EXPECT_EQ(rows_of({0, 1, 0, 0, 0, 1}, {3, 3, 0, 1, 3, 2}, {3, 2}, 4), (Rows{"2", "0 null", "0", "2 null element"}));
  // required list, required element: 0 empty, 1 value
  EXPECT_EQ(rows_of({0, 0, 1, 1}, {0, 1, 1, 1}, {1, 1}, 2), (Rows{"0", "3"}));
  // bare repeated field, all present
  EXPECT_EQ(rows_of({0, 1, 0}, {1, 1, 1}, {1, 1}, 2), (Rows{"2", "1"}));
  // a scalar: no repetition, nullable
  EXPECT_EQ(rows_of({0, 0}, {1, 0}, {1, 0}, 2), (Rows{"1", "1 null element"}));
}

TEST(ParquetLevels, ImpossibleRowsAreRefused) {
  EXPECT_THROW(rows_of({1, 0}, {1, 1}, {1, 1}, 1), DataError);        // continues nothing
  EXPECT_THROW(rows_of({0, 0, 0}, {1, 1, 1}, {1, 1}, 2), DataError);  // too many
  EXPECT_THROW(rows_of({0}, {1}, {1, 1}, 2), DataError);              // too few
  EXPECT_THROW(rows_of({0, 1}, {1, 0}, {1, 1}, 1), DataError);        // an empty list goes on
}

TEST(ParquetLevels, RowsMaySpanPages) {
  ListRows list({1, 1}, 2);
  EXPECT_EQ(list.add_page(std::vector<uint8_t>{0, 1}, std::vector<uint8_t>{1, 1}), 2);
  EXPECT_EQ(list.add_page(std::vector<uint8_t>{1, 0}, std::vector<uint8_t>{1, 0}), 1);
  list.finish();
  EXPECT_EQ(list.offsets(), (std::vector<uint32_t>{0, 3, 3}));
}

TEST(ParquetLevels, SpreadPutsValuesWhereTheyBelong) {
  std::vector<int> values = {7, 8, 9, 0, 0};
  spread_values<int>(std::vector<uint8_t>{3, 2, 1, 3, 0, 2, 3}, {3, 2}, values, 3);
  EXPECT_EQ(values, (std::vector<int>{7, 0, 8, 0, 9}));
}

}  // namespace
}  // namespace redline::data::parquet_rows
