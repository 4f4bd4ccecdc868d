#include "measure/tfevents.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "measure/detail/protobuf.h"

namespace redline::measure {
namespace {

std::string hex(std::string_view bytes) {
  std::string text;
  for (char c : bytes) {
    const char* digits = "0123456789abcdef";
    text += digits[static_cast<unsigned char>(c) >> 4];
    text += digits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// The examples of protobuf's own encoding guide.
TEST(Protobuf, PublishedExamples) {
  EXPECT_EQ(hex(ProtoWriter().varint(1, 150).data()), "089601");
  EXPECT_EQ(hex(ProtoWriter().bytes(2, "testing").data()), "120774657374696e67");
  EXPECT_EQ(hex(ProtoWriter().bytes(3, ProtoWriter().varint(1, 150).data()).data()), "1a03089601");
  EXPECT_EQ(hex(ProtoWriter().varint(1, static_cast<uint64_t>(int64_t{-2})).data()), "08feffffffffffffffff01");
  EXPECT_EQ(hex(ProtoWriter().fixed32(1, 1.0F).data()), "0d0000803f");
  EXPECT_EQ(hex(ProtoWriter().fixed64(16, 1.0).data()), "8101000000000000f03f");
}

TEST(TfRecord, FramesWithMaskedChecksums) {
  const std::string record = tfrecord("abc");
  ASSERT_EQ(record.size(), 8U + 4U + 3U + 4U);
  EXPECT_EQ(hex(record.substr(0, 8)), "0300000000000000");
  EXPECT_EQ(record.substr(12, 3), "abc");
  uint32_t stored = 0;
  std::memcpy(&stored, record.data() + 15, 4);
  const uint32_t rotated = stored - 0xa282ead8U;
  EXPECT_EQ((rotated >> 17) | (rotated << 15), crc32c(std::as_bytes(std::span("abc", 3))))
      << "unmasking gives the plain CRC";
}

TEST(TfHistogram, CountsEveryFiniteValueInItsBucket) {
  const std::vector<float> values = {
      -1.0F, 0.0F, 0.0F, 0.5F, 2.0F, 1e30F, std::numeric_limits<float>::infinity(), std::nanf("")};
  const Histogram h = make_histogram(values);
  EXPECT_EQ(h.count, 6);
  EXPECT_EQ(h.not_finite, 2);
  EXPECT_EQ(h.min, -1);
  EXPECT_NEAR(h.max, 1e30, 1e24);
  EXPECT_EQ(std::accumulate(h.counts.begin(), h.counts.end(), 0.0), 6);
  ASSERT_EQ(h.limits.size(), h.counts.size());
  for (size_t i = 1; i < h.limits.size(); ++i) EXPECT_LT(h.limits[i - 1], h.limits[i]);
  const auto in = [&](double low, double high) {  // reference: count by comparing
    double total = 0;
    for (float v : values) total += std::isfinite(v) && v > low && v <= high ? 1 : 0;
    return total;
  };
  for (size_t i = 1; i < h.limits.size(); ++i) EXPECT_EQ(h.counts[i], in(h.limits[i - 1], h.limits[i])) << i;
  const Histogram none = make_histogram({});
  EXPECT_EQ(none.count, 0);
  EXPECT_TRUE(none.limits.empty());
  const Histogram constant = make_histogram(std::vector<float>(5, 3.0F));
  EXPECT_EQ(constant.counts.back(), 5);
}

TEST(EventFile, EveryStartMakesANewFileThatSortsLast) {
  const auto folder = std::filesystem::temp_directory_path() / ("redline_tf_" + std::to_string(getpid()));
  std::filesystem::remove_all(folder);
  std::vector<std::string> names;
  for (int i = 0; i < 3; ++i) {
    EventFile file(folder, i == 0 ? -1 : 10 * i);
    file.scalars(i, {{"loss", 0.5}});
    names.push_back(file.path().filename().string());
    EXPECT_THROW(file.image(1, "x", "not a png"), InternalError);
  }
  EXPECT_LT(names[0], names[1]);
  EXPECT_LT(names[1], names[2]);
  for (const std::string& name : names) EXPECT_NE(name.find("tfevents"), std::string::npos);
  std::filesystem::remove_all(folder);
}

// What tests/python/test_tfevents.py reads with the real TensorBoard: two processes' files, the second resumed after
// step 3.
TEST(EventFileSample, Writes) {
  const char* given = std::getenv("REDLINE_SAMPLE_DIR");
  const auto root = given != nullptr
                        ? std::filesystem::path(given)
                        : std::filesystem::temp_directory_path() / ("redline_tf_sample_" + std::to_string(getpid()));
  const auto folder = root / "run";
  {
    EventFile file(folder);
    for (int64_t step = 1; step <= 5; ++step) file.scalars(step, {{"loss", static_cast<double>(step)}});
  }
  {
    EventFile file(folder, 3);
    for (int64_t step = 4; step <= 6; ++step) file.scalars(step, {{"loss", 10.0 * static_cast<double>(step)}});
    std::vector<float> values;
    for (int i = -50; i <= 50; ++i) values.push_back(static_cast<float>(i) / 10.0F);
    file.histogram(2, "weights", make_histogram(values));
    file.image(2, "picture", read_file(std::string(REDLINE_FIXTURES) + "/measure/pixels.png"));
    file.text(2, "note",
              "**bold** und Gr\xc3\xbc\xc3\x9f"
              "e");
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2);
  if (given == nullptr) std::filesystem::remove_all(root);
}

TEST(EventFile, AFolderThatCanNotBeMadeIsADiskError) { EXPECT_THROW(EventFile file("/dev/null/tb"), DiskError); }

}  // namespace
}  // namespace redline::measure
