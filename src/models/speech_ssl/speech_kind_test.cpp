// Whole loaders with NEST's noise over real files: contents for any number of workers, micro-batches and ranks; caches.
#include "models/speech_ssl/speech_kind.h"

#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/hash.h"
#include "data/build_loader.h"
#include "data/testing/audio_files.h"

namespace redline::models::speech {
namespace {

namespace ta = data::testing_audio;
using config::Node;
using data::build_loader;
using data::DatasetConfig;
using data::encode_flac;
using data::encode_wav;
using data::Loader;
using data::TaskNeeds;

class SpeechKindTest : public testing::Test {
 protected:
  SpeechKindTest() : folder_("speech_kind") {
    std::string manifest, noise;
    for (int i = 0; i < 60; ++i) {
      const double seconds = 0.2 + 0.05 * (i * 7 % 13);
      const std::string name = "clip_" + std::to_string(i) + ".flac", bytes = encode_flac(ta::tone(i, seconds), 16000);
      folder_.write(name, bytes);
      manifest += ta::manifest_line(name, seconds);
    }
    for (int i = 0; i < 4; ++i) {
      folder_.write("noise_" + std::to_string(i) + ".wav", encode_wav(ta::tone(50 + i, 0.3 + i), 16000));
      noise += ta::manifest_line("noise_" + std::to_string(i) + ".wav", 0.3 + i);
    }
    folder_.write("m.json", manifest);
    folder_.write("noise.json", noise);
  }

  DatasetConfig audio() const {
    DatasetConfig config;
    config.manifest_filepath = Node::scalar((folder_ / "m.json").string());
    config.noise_manifest = Node::scalar((folder_ / "noise.json").string());
    config.batch_size = 4;
    config.shuffle = true;
    config.min_audio_len_secs = 0.3;
    config.batch_augmentor.emplace();
    config.batch_augmentor->prob = 0.7;
    config.batch_augmentor->noise_ratio = 0.5;
    return config;
  }
  static TaskNeeds speech() {
    TaskNeeds needs;
    needs.kind = noisy_speech_kind();
    needs.collate.fields.push_back({"audio", 0.0, 1, "audio_len", false});
    needs.collate.fields.push_back({"noise", 0.0, 1, "noise_len", false});
    needs.collate.fields.push_back({"noisy_audio", 0.0, 1, "noisy_audio_len", false});
    needs.collate.counted_field = "audio";
    return needs;
  }
  static std::unique_ptr<Loader> load(DatasetConfig config, const TaskNeeds& needs) {
    MachineFacts machine;
    machine.allowed_cpus = 64;
    config.resolve(machine, 3);
    return build_loader(config, needs);
  }
  // Every row of an epoch by its sample: a hash of what it holds.
  static std::map<int64_t, uint64_t> rows_of(Loader& loader, int epochs = 1) {
    std::map<int64_t, uint64_t> rows;
    for (int e = 0; e < epochs; ++e) {
      while (auto batch = loader.next()) {
        for (size_t r = 0; r < batch->sample_ids.size(); ++r) {
          uint64_t hash = static_cast<uint64_t>(batch->step);
          for (const auto& [name, array] : batch->fields) {
            if (array.shape().size() != 2) continue;
            const size_t width = static_cast<size_t>(array.shape()[1]);
            const size_t length = static_cast<size_t>(batch->find(name + "_len")->as<int64_t>()[r]);
            hash = hash64(std::as_bytes(array.as<float>().subspan(r * width, length)), hash);
          }
          rows[batch->epoch * 1000 + batch->sample_ids[r]] = hash;
        }
      }
    }
    return rows;
  }

  ta::TempFolder folder_;
};

TEST_F(SpeechKindTest, SpeechIsTheSameForAnyWorkersMicroBatchesAndRanks) {
  const auto expected = rows_of(*load(audio(), speech()), 2);
  EXPECT_EQ(expected.size(), 120u);
  for (int workers : {0, 1, 2, 4, 8}) {
    DatasetConfig config = audio();
    config.num_workers = workers;
    EXPECT_EQ(rows_of(*load(config, speech()), 2), expected) << workers << " workers";
  }
  DatasetConfig split = audio();
  split.micro_batch_size = 3;
  EXPECT_EQ(rows_of(*load(split, speech()), 2), expected);
  for (int world : {2, 3}) {
    std::map<int64_t, uint64_t> together;
    for (int rank = 0; rank < world; ++rank) {
      TaskNeeds needs = speech();
      needs.rank = rank;
      needs.world = world;
      for (const auto& row : rows_of(*load(audio(), needs), 2))
        EXPECT_TRUE(together.insert(row).second) << "a sample on two ranks";
    }
    EXPECT_EQ(together, expected) << world << " ranks";
  }
  DatasetConfig seeded = audio();
  seeded.seed = 4;
  EXPECT_NE(rows_of(*load(seeded, speech()), 2), expected);
}

TEST_F(SpeechKindTest, CachesChangeNothing) {
  const auto expected = rows_of(*load(audio(), speech()), 2);
  for (const char* kind : {"memory", "disk"}) {
    DatasetConfig config = audio();
    config.cache = kind;
    config.cache_dir = (folder_ / "cache").string();
    config.num_workers = 2;
    auto loader = load(config, speech());
    EXPECT_EQ(rows_of(*loader, 2), expected) << kind;
    EXPECT_GE(loader->stats().cache_hits, 55);
  }
  DatasetConfig again = audio();
  again.cache = "disk";
  again.cache_dir = (folder_ / "cache").string();
  auto loader = load(again, speech());
  EXPECT_EQ(rows_of(*loader), rows_of(*load(audio(), speech())));
  EXPECT_EQ(loader->stats().cache_misses, 0) << "the next run starts warm";
  again.min_audio_len_secs = 0.4;
  again.num_workers = 0;  // workers would run ahead into the next epoch, and that one hits
  auto changed = load(again, speech());
  EXPECT_EQ(rows_of(*changed), rows_of(*load(
                                   [&] {
                                     auto c = audio();
                                     c.min_audio_len_secs = 0.4;
                                     return c;
                                   }(),
                                   speech())));
  EXPECT_EQ(changed->stats().cache_hits, 0) << "another setting never reads a stale entry";
}

// Without a word of noise in the batch nothing is drawn or mixed, and groups need not be read whole.
TEST_F(SpeechKindTest, NoiseIsMadeOnlyWhenTheBatchWantsIt) {
  TaskNeeds needs = speech();
  EXPECT_NE(needs.kind->group_transform(audio(), needs), nullptr);
  needs.collate.fields.resize(1);
  EXPECT_EQ(needs.kind->group_transform(audio(), needs), nullptr);
  EXPECT_EQ(needs.kind->transforms(audio(), needs, {}).size(), 1u) << "only the minimal length";
  DatasetConfig plain = audio();
  plain.batch_augmentor.reset();
  EXPECT_EQ(speech().kind->group_transform(plain, speech()), nullptr);
  EXPECT_EQ(speech().kind->transforms(plain, speech(), {}).size(), 3u) << "minimal length, noise, sum";
  EXPECT_THROW(data::audio_kind()->open(
                   [&] {
                     DatasetConfig config = plain;
                     config.resolve({}, 3);
                     return config;
                   }(),
                   true),
               ConfigError)
      << "audio alone has no use for a noise_manifest";
}

}  // namespace
}  // namespace redline::models::speech
