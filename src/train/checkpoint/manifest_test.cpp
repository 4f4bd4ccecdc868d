#include "train/checkpoint/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/testing/memory_file_ops.h"
#include "train/checkpoint/block_reader.h"

namespace redline::train {
namespace {

using ::testing::HasSubstr;

Manifest sample_manifest() {
  return {12000,
          "val_\"loss\"",
          0.1,
          "2026-11-15T20:00:00.000Z",
          {{"model.safetensors", kBlockBytes + 1, std::string(64, 'a'), {1, 0xdeadbeef}},
           {"state.json", 0, std::string(64, '0'), {}}}};
}

std::string signed_again(std::string body) {  // a manifest with a true checksum over a false text
  const std::string whole = manifest_text(sample_manifest());
  const size_t tail = whole.rfind(",\n\"manifest_crc32c\"");
  char sum[9];
  std::snprintf(sum, sizeof(sum), "%08x", crc32c(std::as_bytes(std::span(body))));
  body += whole.substr(tail, whole.size() - tail - 11);
  return body.append(sum).append("\"}\n");
}

TEST(CheckpointManifest, ComesBackEqual) {
  for (const double metric : {0.1, -3.0, std::nan(""), double{INFINITY}, double{-INFINITY}}) {
    Manifest manifest = sample_manifest();
    manifest.metric = metric;
    const Manifest back = parse_manifest(manifest_text(manifest), "MANIFEST.json");
    EXPECT_EQ(back.step, 12000);
    EXPECT_EQ(back.monitor, manifest.monitor);
    EXPECT_TRUE(*back.metric == metric || (std::isnan(metric) && std::isnan(*back.metric)));
    ASSERT_EQ(back.files.size(), 2u);
    EXPECT_EQ(back.find("model.safetensors")->crc32c, (std::vector<uint32_t>{1, 0xdeadbeef}));
    EXPECT_EQ(back.find("nothing"), nullptr);
  }
  EXPECT_TRUE(nlohmann::json::accept(manifest_text(sample_manifest())));
}

TEST(CheckpointManifest, AnyChangedBitIsSeen) {
  const std::string text = manifest_text(sample_manifest());
  for (size_t i = 0; i < text.size() * 8; ++i) {
    std::string changed = text;
    changed[i / 8] = static_cast<char>(changed[i / 8] ^ (1 << (i % 8)));
    EXPECT_THROW(parse_manifest(changed, "MANIFEST.json"), DamagedError) << i;
  }
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_THROW(parse_manifest(text.substr(0, size), "M"), DamagedError);
}

TEST(CheckpointManifest, FalseTextsWithTrueChecksumsAreRefused) {
  const std::string whole = manifest_text(sample_manifest());
  const std::string body = whole.substr(0, whole.rfind(",\n\"manifest_crc32c\""));
  ASSERT_EQ(signed_again(body), whole);
  const std::pair<const char*, const char*> changes[] = {
      {"redline checkpoint", "other"},
      {"\"model.safetensors\"", "\"../model\""},
      {"\"state.json\"", "\"model.safetensors\""},
      {"\"state.json\"", "\"MANIFEST.json\""},
      {"1048577", "1048576"},
      {"1048577", "-1"},
      {"1048577", "18446744073709551615"},
      {"deadbeef", "DEADBEEF"},
      {"\"metric\":0.1", "\"metric\":\"soon\""},
      {"\"step\":12000", "\"step\":\"12000\""},
      {"\"files\":[", "\"file\":["},
      {"\"block_bytes\":1048576", "\"block_bytes\":1"},
      {"{\"format\"", "[{\"format\""},
  };
  for (const auto& [from, to] : changes) {
    std::string changed = body;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), std::string(from).size(), to);
    EXPECT_THROW(parse_manifest(signed_again(changed), "MANIFEST.json"), DamagedError) << to;
  }
  std::string newer = body;
  newer.replace(newer.find("\"version\":1"), 11, "\"version\":9");
  try {
    parse_manifest(signed_again(newer), "MANIFEST.json");
    FAIL();
  } catch (const DamagedError&) {
    FAIL() << "a newer version is not damage";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("version 9"));
  }
}

TEST(CheckpointManifest, DigestsAreThoseOfTheBytesWritten) {
  std::string content;
  for (int i = 0; i < 2'500'000; ++i) content += static_cast<char>(i * 31 + i / 977);
  for (const size_t piece : {size_t{7}, size_t{4096}, size_t{1} << 20, (size_t{1} << 20) + 5, content.size()}) {
    MemoryFileOps disk;
    const auto file = disk.create("f");
    DigestFile digested(*file, "f");
    for (size_t at = 0; at < content.size(); at += piece) {
      digested.write(std::as_bytes(std::span(content).subspan(at, std::min(piece, content.size() - at))));
    }
    digested.sync();
    digested.close();
    const FileDigest digest = digested.digest();
    EXPECT_EQ(*disk.content("f"), content);
    EXPECT_EQ(digest.bytes, content.size());
    EXPECT_EQ(digest.sha256, sha256_hex(content));
    ASSERT_EQ(digest.crc32c.size(), 3u);
    EXPECT_EQ(digest.crc32c[2], crc32c(std::as_bytes(std::span(content).subspan(2 * kBlockBytes))));
    EXPECT_LT(disk.operations().size(), 8u);  // gathered into blocks
  }
}

}  // namespace
}  // namespace redline::train
