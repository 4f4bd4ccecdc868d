// Bit rot: flipped bits and truncations anywhere in a generation are detected, the file and block named, the one before
// used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/log.h"
#include "core/philox.h"
#include "train/checkpoint/generation.h"
#include "train/testing/test_state.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;
using test::equal_states;
using test::keep_two;
using test::ScratchDirectory;
using test::state_at;

constexpr const char* kFiles[] = {"model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json"};
constexpr int64_t kDamagedFloats = 550'000;

class CheckpointDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    set_log_level(LogLevel::Error);
    CheckpointStore store(directory(), keep_two());
    store.save_sync(state_at(1), 1);
    store.save_sync(state_at(2, kDamagedFloats), 2);
    for (const char* name : kFiles) originals_[name] = read_file(newest() / name);
  }
  void TearDown() override { set_log_level(LogLevel::Info); }
  fs::path directory() const { return scratch_.path() / "c"; }
  fs::path newest() const { return directory() / "step-00000002"; }

  // With the damage in place: named by verify, skipped and quarantined by load. Then everything is put back.
  void expect_found(const std::string& name, uint64_t byte, const std::string& what) {
    const VerifyReport report = verify_generation(newest(), VerifyDepth::Crc);
    ASSERT_EQ(report.damage.size(), 1u) << what;
    EXPECT_EQ(report.damage[0].file.filename(), name) << what;
    ASSERT_TRUE(report.damage[0].block.has_value()) << what;
    EXPECT_EQ(*report.damage[0].block, name == std::string(kManifestName) ? 0 : byte / kBlockBytes) << what;
    std::string named;
    CheckpointStore store(directory(), keep_two(), [&](const std::string& kind, const measure::FieldList& fields) {
      if (kind == "checkpoint.damaged") named = std::get<std::string>(fields[0].second);
    });
    const auto loaded = store.load_newest();
    ASSERT_TRUE(loaded.has_value()) << what;
    EXPECT_EQ(loaded->info.step, 1) << what;
    EXPECT_EQ(fs::path(named).filename(), name) << what;
    EXPECT_TRUE(equal_states(loaded->state, state_at(1))) << what;
    ASSERT_TRUE(fs::exists(directory() / "quarantine-step-00000002")) << what;
    fs::rename(directory() / "quarantine-step-00000002", newest());
  }

  void write_file(const std::string& name, const std::string& content) const {
    std::ofstream(newest() / name, std::ios::binary)
        .write(content.data(), static_cast<std::streamsize>(content.size()));
  }

  ScratchDirectory scratch_;
  std::map<std::string, std::string> originals_;
};

TEST_F(CheckpointDamage, AThousandFlippedBits) {
  KeyedStream random(1, 0, 0, 0);
  for (int i = 0; i < 1000; ++i) {
    const std::string name = kFiles[i % 4];
    const std::string& original = originals_[name];
    const auto at = static_cast<uint64_t>(random.uniform_int(0, static_cast<int64_t>(original.size()) - 1));
    const char flipped = static_cast<char>(original[at] ^ (1 << random.uniform_int(0, 7)));
    auto put = [&](char c) {
      std::fstream file(newest() / name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(static_cast<std::streamoff>(at)).put(c);
    };
    put(flipped);
    expect_found(name, at, name + " byte " + std::to_string(at));
    put(original[at]);
    if (HasFatalFailure()) return;
  }
  EXPECT_TRUE(verify_generation(newest(), VerifyDepth::Sha256).damage.empty());
}

TEST_F(CheckpointDamage, TwoHundredTruncations) {
  KeyedStream random(2, 0, 0, 0);
  for (int i = 0; i < 200; ++i) {
    const std::string name = kFiles[i % 4];
    const std::string& original = originals_[name];
    const uint64_t size =
        i < 4 ? 0 : static_cast<uint64_t>(random.uniform_int(0, static_cast<int64_t>(original.size()) - 1));
    fs::resize_file(newest() / name, size);
    expect_found(name, size, name + " cut to " + std::to_string(size));
    write_file(name, original);
    if (HasFatalFailure()) return;
  }
}

TEST_F(CheckpointDamage, OtherKinds) {
  // The same bytes swapped between two places, a file that grew, a stale manifest, a missing file.
  std::string swapped = originals_["model.safetensors"];
  std::swap_ranges(swapped.begin() + 100'000, swapped.begin() + 100'512, swapped.begin() + 1'900'000);
  write_file("model.safetensors", swapped);
  expect_found("model.safetensors", 100'000, "swapped");
  write_file("model.safetensors", originals_["model.safetensors"] + "x");
  expect_found("model.safetensors", originals_["model.safetensors"].size(), "grown");
  write_file("model.safetensors", originals_["model.safetensors"]);
  write_file("MANIFEST.json", read_file(directory() / "step-00000001" / "MANIFEST.json"));
  expect_found("MANIFEST.json", 0, "stale manifest");
  write_file("MANIFEST.json", originals_["MANIFEST.json"]);
  fs::remove(newest() / "optimizer.safetensors");
  const VerifyReport report = verify_generation(newest(), VerifyDepth::Sha256);
  ASSERT_EQ(report.damage.size(), 1u);
  EXPECT_EQ(report.damage[0].file.filename(), "optimizer.safetensors");
}

TEST_F(CheckpointDamage, OnPurposeIsSeenByShaOnly) {
  // Somebody replaces weights and mends the CRCs but not the SHA-256.
  Manifest manifest = read_manifest(newest());
  std::string content = originals_["state.json"];
  content[0] = ' ';
  write_file("state.json", content);
  for (FileDigest& digest : manifest.files) {
    if (digest.name == "state.json") digest.crc32c[0] = crc32c(std::as_bytes(std::span(content)));
  }
  write_file("MANIFEST.json", manifest_text(manifest));
  EXPECT_TRUE(verify_generation(newest(), VerifyDepth::Crc).damage.empty());
  const VerifyReport report = verify_generation(newest(), VerifyDepth::Sha256);
  ASSERT_EQ(report.damage.size(), 1u);
  EXPECT_THAT(report.damage[0].reason, ::testing::HasSubstr("on purpose"));
}

}  // namespace
}  // namespace redline::train
