#include "measure/detail/steps_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"

namespace redline::measure {
namespace {

StepRow row_of(int64_t step) {
  StepRow row;
  row.step = step;
  row.epoch = step / 10;
  row.begin_ns = step * 1'000'000;
  for (size_t i = 0; i < kNumPhases; ++i) row.phase_ns[i] = static_cast<int64_t>(1000 * (i + 1)) + step;
  for (size_t i = 0; i < kNumStages; ++i) row.stage_ns[i] = static_cast<int64_t>(77 * i) + step;
  for (int64_t ns : row.phase_ns) row.wall_ns += ns;
  row.samples = 16;
  row.micro_batches = 2;
  row.items = 1234 + step;
  row.padded_items = 2000 + step;
  row.live_bytes = 1 << 20;
  row.peak_bytes = 3 << 20;
  row.rss_bytes = 5 << 20;
  row.loss = 1.0 / static_cast<double>(step);
  row.learning_rate = 1e-3;
  row.grad_norm = 0.5;
  row.flags = kStepRetriedPrecision;
  return row;
}

std::string file_of(int64_t rows) {
  std::string bytes = encode_steps_header();
  for (int64_t step = 1; step <= rows; ++step) encode_step(row_of(step), bytes);
  return bytes;
}

std::string encoded(const StepRow& row) {
  std::string bytes;
  encode_step(row, bytes);
  return bytes;
}

TEST(StepsFile, ReadsBackEveryField) {
  const StepsContent content = decode_steps(file_of(3), "steps.bin");
  ASSERT_EQ(content.rows.size(), 3U);
  EXPECT_TRUE(content.warnings.empty());
  for (int64_t step = 1; step <= 3; ++step) {
    // Encoding covers each field (the size is checked there), so equal bytes mean equal fields.
    EXPECT_EQ(encoded(content.rows[static_cast<size_t>(step - 1)]), encoded(row_of(step)));
  }
  EXPECT_EQ(content.rows[1].items, 1236);
  EXPECT_EQ(content.rows[1].loss, 0.5);
  EXPECT_EQ(content.rows[1].flags, kStepRetriedPrecision);
}

// The bytes of docs/formats.md, looked up at their offsets: the format may not drift from its description.
TEST(StepsFile, HasTheDocumentedBytes) {
  const std::string bytes = file_of(1);
  ASSERT_EQ(bytes.size(), 64U + 232U);
  const auto u32 = [&](size_t at) {
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
  };
  const auto i64 = [&](size_t at) {
    int64_t value = 0;
    std::memcpy(&value, bytes.data() + at, 8);
    return value;
  };
  const auto crc = [&](size_t begin, size_t size) {
    return crc32c(std::as_bytes(std::span(bytes.data() + begin, size)));
  };
  EXPECT_EQ(bytes.substr(0, 8), "RLSTEPS\n");
  EXPECT_EQ(u32(8), 1U);
  EXPECT_EQ(u32(12), 232U);
  EXPECT_EQ(u32(16), 11U);
  EXPECT_EQ(u32(20), 4U);
  EXPECT_EQ(bytes.substr(24, 36), std::string(36, '\0'));
  EXPECT_EQ(u32(60), crc(0, 60));
  const StepRow row = row_of(1);
  EXPECT_EQ(i64(64 + 0), row.step);
  EXPECT_EQ(i64(64 + 8), row.epoch);
  EXPECT_EQ(i64(64 + 16), row.begin_ns);
  EXPECT_EQ(i64(64 + 24), row.wall_ns);
  EXPECT_EQ(i64(64 + 32), row.phase_ns[0]);
  EXPECT_EQ(i64(64 + 112), row.phase_ns[10]);
  EXPECT_EQ(i64(64 + 120), row.stage_ns[0]);
  EXPECT_EQ(i64(64 + 144), row.stage_ns[3]);
  EXPECT_EQ(u32(64 + 152), 16U);
  EXPECT_EQ(u32(64 + 156), 2U);
  EXPECT_EQ(i64(64 + 160), row.items);
  EXPECT_EQ(i64(64 + 168), row.padded_items);
  EXPECT_EQ(i64(64 + 176), row.live_bytes);
  EXPECT_EQ(i64(64 + 184), row.peak_bytes);
  EXPECT_EQ(i64(64 + 192), row.rss_bytes);
  double loss = 0;
  std::memcpy(&loss, bytes.data() + 64 + 200, 8);
  EXPECT_EQ(loss, row.loss);
  EXPECT_EQ(u32(64 + 224), row.flags);
  EXPECT_EQ(u32(64 + 228), crc(64, 228));
}

TEST(StepsFile, TruncatedAtEveryByteDropsExactlyTheTornTail) {
  const std::string whole = file_of(6);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const StepsContent content = decode_steps(whole.substr(0, size), "steps.bin");
    const size_t rows = size < kStepsHeaderBytes ? 0 : (size - kStepsHeaderBytes) / kStepRowBytes;
    ASSERT_EQ(content.rows.size(), rows) << "cut at byte " << size;
    for (size_t i = 0; i < rows; ++i) ASSERT_EQ(encoded(content.rows[i]), encoded(row_of(static_cast<int64_t>(i) + 1)));
    const bool torn = size < kStepsHeaderBytes || (size - kStepsHeaderBytes) % kStepRowBytes != 0;
    ASSERT_EQ(content.warnings.size(), torn ? 1U : 0U) << "cut at byte " << size;
    if (size >= kStepsHeaderBytes) {
      ASSERT_EQ(content.good_bytes, kStepsHeaderBytes + rows * kStepRowBytes);
    }
  }
}

TEST(StepsFile, ADamagedByteCostsItsRowOnly) {
  const std::string whole = file_of(4);
  KeyedStream draws(1, 0, 0, 0);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ static_cast<char>(draws.uniform_int(1, 255)));
    const StepsContent content = decode_steps(damaged, "steps.bin");
    ASSERT_EQ(content.warnings.size(), 1U) << "byte " << at;
    if (at < kStepsHeaderBytes) {
      ASSERT_EQ(content.rows.size(), 4U) << "rows check themselves, byte " << at;
      continue;
    }
    ASSERT_EQ(content.rows.size(), 3U) << "byte " << at;
    const auto lost = static_cast<int64_t>((at - kStepsHeaderBytes) / kStepRowBytes) + 1;
    for (const StepRow& row : content.rows) ASSERT_NE(row.step, lost) << "byte " << at;
  }
}

// After a power cut a file may end in zeros: they are no rows.
TEST(StepsFile, ZerosAreNoRows) {
  const StepsContent content = decode_steps(file_of(2) + std::string(3 * kStepRowBytes, '\0'), "steps.bin");
  EXPECT_EQ(content.rows.size(), 2U);
  EXPECT_EQ(content.good_bytes, kStepsHeaderBytes + 2 * kStepRowBytes);
  EXPECT_EQ(content.warnings.size(), 1U);
}

TEST(StepsFile, RefusesOtherFilesAndVersions) {
  EXPECT_THROW(decode_steps("hello", "x"), DataError);
  EXPECT_THROW(decode_steps(std::string(1000, 'x'), "x"), DataError);
  std::string other = encode_steps_header().substr(0, 60);
  other[8] = 2;  // version
  const uint32_t checksum = crc32c(std::as_bytes(std::span(other.data(), other.size())));
  other.append(reinterpret_cast<const char*>(&checksum), 4);
  try {
    decode_steps(other, "x");
    FAIL();
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("version 2"));
  }
}

TEST(StepsFile, LaterRowsWin) {
  const auto steps_of = [](std::initializer_list<int64_t> steps) {
    std::vector<StepRow> rows;
    for (int64_t step : steps) {
      rows.push_back(row_of(step));
      rows.back().samples = static_cast<int32_t>(rows.size());
    }
    std::vector<std::pair<int64_t, int32_t>> kept;
    for (const StepRow& row : without_repeats(rows)) kept.emplace_back(row.step, row.samples);
    return kept;
  };
  using Kept = std::vector<std::pair<int64_t, int32_t>>;
  EXPECT_EQ(steps_of({}), Kept{});
  EXPECT_EQ(steps_of({1, 2, 3}), (Kept{{1, 1}, {2, 2}, {3, 3}}));
  EXPECT_EQ(steps_of({1, 2, 3, 2, 3, 4}), (Kept{{1, 1}, {2, 4}, {3, 5}, {4, 6}})) << "resumed after step 1";
  EXPECT_EQ(steps_of({1, 2, 1, 2, 1}), (Kept{{1, 5}}));
}

}  // namespace
}  // namespace redline::measure
