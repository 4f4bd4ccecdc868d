#include "data/shard_writer.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "data/audio/manifest_source.h"
#include "data/audio/tarred_source.h"
#include "data/images/web_dataset_source.h"
#include "data/testing/audio_files.h"

namespace redline::data {
namespace {

namespace ta = testing_audio;

std::vector<float> read_audio(const Source& source, int64_t index) {
  measure::StageClock::Slot slot;
  const ReadResult result = source.read(index, slot);
  const auto samples = std::get<Sample>(result).find("audio")->as<float>();
  return {samples.begin(), samples.end()};
}

class ShardWriterTest : public testing::Test {
 protected:
  ShardWriterTest() : folder_("shard_writer") {
    for (int i = 0; i < 7; ++i) {
      folder_.write("d/x.y_" + std::to_string(i) + ".wav", encode_wav(ta::tone(i, 0.5), 16000));
      manifest_ += ta::manifest_line("d/x.y_" + std::to_string(i) + ".wav", 0.5);
    }
  }
  ta::TempFolder folder_;
  std::string manifest_;
};

TEST(FlatName, IsNemos) {
  EXPECT_EQ(flat_name("dir/a.b.wav"), "dir_a_b.wav");
  EXPECT_EQ(flat_name("/abs/x.flac"), "abs_x.flac");
  EXPECT_EQ(flat_name("d.e/plain"), "d_e_plain");
}

TEST_F(ShardWriterTest, NemoShardsHoldTheSameClipsAndSegments) {
  folder_.write("m.json", manifest_ + ta::manifest_line("d/x.y_0.wav", 0.25, 0.25));
  const ShardResult result = write_shards({folder_ / "m.json"}, folder_ / "out", {.num_shards = 2});
  EXPECT_EQ(result.num_entries, 8);
  EXPECT_EQ(result.num_dropped, 0);
  const TarredSource tarred({folder_ / "out/tarred_audio_manifest.json"},
                            {folder_ / "out/audio_0.tar", folder_ / "out/audio_1.tar"}, {});
  const ManifestSource plain({folder_ / "m.json"}, {});
  ASSERT_EQ(tarred.size(), plain.size());
  for (int64_t i = 0; i < plain.size(); ++i) EXPECT_EQ(read_audio(tarred, i), read_audio(plain, i)) << i;
  const TarredSource sharded(
      {folder_ / "out/sharded_manifests/manifest_0.json", folder_ / "out/sharded_manifests/manifest_1.json"},
      {folder_ / "out/audio_0.tar", folder_ / "out/audio_1.tar"}, {});
  EXPECT_EQ(sharded.size(), 8);
  EXPECT_NE(read_file(folder_ / "out/metadata.yaml").find("num_shards: 2"), std::string::npos);
}

TEST_F(ShardWriterTest, EqualShardsDropTheRemainderAndSayHowMuch) {
  folder_.write("m.json", manifest_);
  const ShardResult result =
      write_shards({folder_ / "m.json"}, folder_ / "out", {.num_shards = 3, .shuffle = true, .seed = 5});
  EXPECT_EQ(result.num_entries, 6);
  EXPECT_EQ(result.num_dropped, 1);
  EXPECT_THROW(write_shards({folder_ / "m.json"}, folder_ / "out2", {.num_shards = 8}), ConfigError);
}

TEST_F(ShardWriterTest, WebDatasetShardsHoldEveryClip) {
  folder_.write("m.json", manifest_);
  const ShardResult result =
      write_shards({folder_ / "m.json"}, folder_ / "web", {.format = ShardFormat::WebDataset, .num_shards = 2});
  EXPECT_EQ(result.num_entries, 7);
  const WebDatasetSource web({folder_ / "web/shard-000000.tar", folder_ / "web/shard-000001.tar"}, WebKind::Audio);
  ASSERT_EQ(web.size(), 7);
  EXPECT_EQ(web.length(3), 0.5);
  folder_.write("segments.json", ta::manifest_line("d/x.y_0.wav", 0.25, 0.25));
  EXPECT_THROW(
      write_shards({folder_ / "segments.json"}, folder_ / "web2", {.format = ShardFormat::WebDataset, .num_shards = 1}),
      DataError);
}

TEST_F(ShardWriterTest, AMissingFileIsNamed) {
  folder_.write("m.json", ta::manifest_line("gone.wav", 1.0));
  EXPECT_THROW(write_shards({folder_ / "m.json"}, folder_ / "out", {.num_shards = 1}), DataError);
}

}  // namespace
}  // namespace redline::data
