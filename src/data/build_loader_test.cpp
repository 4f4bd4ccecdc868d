// Whole loaders over real files: order, contents, ranks and resume with NeMo's augmentation, tars, buckets, pictures.
#include "data/build_loader.h"

#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <map>
#include <set>

#include "core/error.h"
#include "data/codecs/image_writer.h"
#include "data/kinds.h"
#include "data/tensor_batch.h"
#include "data/testing/audio_files.h"
#include "data/testing/engine.h"

namespace redline::data {
namespace {

namespace ta = testing_audio;
using config::Node;

class BuildLoaderTest : public testing::Test {
 protected:
  BuildLoaderTest() : folder_("build_loader") {
    std::string manifest, tarred;
    TarWriter tar0(posix_file_ops().create(folder_ / "audio_0.tar")),
        tar1(posix_file_ops().create(folder_ / "audio_1.tar"));
    for (int i = 0; i < 60; ++i) {
      const double seconds = 0.2 + 0.05 * (i * 7 % 13);
      const std::string name = "clip_" + std::to_string(i) + ".flac", bytes = encode_flac(ta::tone(i, seconds), 16000);
      folder_.write(name, bytes);
      manifest += ta::manifest_line(name, seconds);
      tarred += ta::manifest_line(name, seconds, 0, i % 2);
      (i % 2 == 0 ? tar0 : tar1).add(name, ta::bytes_of(bytes));
    }
    tar0.finish();
    tar1.finish();
    folder_.write("m.json", manifest);
    folder_.write("tarred.json", tarred);
  }

  DatasetConfig audio() const {
    DatasetConfig config;
    config.manifest_filepath = Node::scalar((folder_ / "m.json").string());
    config.batch_size = 4;
    config.shuffle = true;
    config.min_audio_len_secs = 0.3;
    config.min_gain_db = -6;
    config.max_gain_db = 6;
    return config;
  }
  static TaskNeeds of(std::shared_ptr<const Kind> kind) {
    TaskNeeds needs;
    needs.kind = std::move(kind);
    return needs;
  }
  static TaskNeeds speech() {
    TaskNeeds needs = of(audio_kind());
    needs.collate.fields.push_back({"audio", 0.0, 1, "audio_len", false});
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

TEST_F(BuildLoaderTest, SpeechIsTheSameForAnyWorkersMicroBatchesAndRanks) {
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

TEST_F(BuildLoaderTest, CachesChangeNothing) {
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

TEST_F(BuildLoaderTest, TarsHoldTheSameClips) {
  TaskNeeds needs = of(audio_kind());
  needs.collate.fields.push_back({"audio", 0.0, 1, "audio_len", false});
  DatasetConfig plain = audio();
  plain.shuffle = false;
  DatasetConfig tarred = plain;
  tarred.manifest_filepath = Node::scalar((folder_ / "tarred.json").string());
  tarred.is_tarred = true;
  tarred.tarred_audio_filepaths = Node::scalar((folder_ / "audio__OP_0..1_CL_.tar").string());
  EXPECT_EQ(rows_of(*load(tarred, needs)), rows_of(*load(plain, needs)));
  tarred.shuffle = true;
  for (int64_t window : {-1, 0, 1, 16, 2048}) {
    tarred.shuffle_n = window;
    EXPECT_EQ(rows_of(*load(tarred, needs)).size(), 60u) << window;
  }
  tarred.tarred_shard_strategy = "replicate";
  needs.world = 2;
  EXPECT_EQ(load(tarred, needs)->steps_per_epoch(), 30);
}

TEST_F(BuildLoaderTest, WebDatasetTarsNeedNoManifest) {
  DatasetConfig config;
  config.path = Node::scalar((folder_ / "audio_{0..1}.tar").string());
  config.batch_size = 7;
  TaskNeeds needs = of(audio_kind());
  auto loader = load(config, needs);
  EXPECT_EQ(rows_of(*loader).size(), 60u);
}

TEST_F(BuildLoaderTest, StaticBucketsAndConcatenation) {
  std::string manifests[2];
  for (int i = 0; i < 60; ++i)
    manifests[i % 3 == 0 ? 0 : 1] += ta::manifest_line("clip_" + std::to_string(i) + ".flac", 0.2);
  folder_.write("one.json", manifests[0]);
  folder_.write("two.json", manifests[1]);
  const Node one = Node::scalar((folder_ / "one.json").string()), two = Node::scalar((folder_ / "two.json").string());
  TaskNeeds needs = of(audio_kind());
  needs.collate.fields.push_back({"audio", 0.0, 1, "audio_len", false});
  DatasetConfig buckets;
  buckets.manifest_filepath = Node::list({Node::list({one}), Node::list({two})});
  buckets.bucketing_batch_size = Node::scalar("5");
  buckets.batch_size = 1;
  buckets.bucketing_strategy = "fixed_order";
  auto loader = load(buckets, needs);
  EXPECT_EQ(loader->next()->sample_ids.size(), 10u) << "two buckets: the first gets twice the size";
  EXPECT_EQ(loader->next()->sample_ids.size(), 10u);
  EXPECT_EQ(loader->next()->sample_ids.size(), 5u);
  DatasetConfig concat;
  concat.manifest_filepath = Node::list({one, two});
  concat.is_concat = true;
  concat.concat_sampling_technique = "random";
  concat.concat_sampling_probabilities = {0.9, 0.1};
  concat.concat_sampling_scale = 10;
  concat.batch_size = 10;
  loader = load(concat, needs);
  int64_t first = 0, all = 0;
  while (auto batch = loader->next()) {
    for (int64_t id : batch->sample_ids) first += id < 20, ++all;
  }
  EXPECT_EQ(all, 600);
  EXPECT_NEAR(static_cast<double>(first) / 600.0, 0.9, 0.05);
  buckets.num_buckets = 4;
  EXPECT_THROW(load(buckets, needs), ConfigError);
}

TEST_F(BuildLoaderTest, PaddingToAFixedLength) {
  DatasetConfig config = audio();
  config.use_dynamic_padding = false;
  config.max_duration = 1.0;
  config.min_audio_len_secs = 0.0;
  auto loader = load(config, speech());
  while (auto batch = loader->next()) ASSERT_EQ(batch->find("audio")->shape()[1], 16000);
}

TEST_F(BuildLoaderTest, DurationsAreFilteredAndBatchesBounded) {
  DatasetConfig config = audio();
  config.min_duration = 0.3;
  config.max_duration = 0.7;
  config.batch_size = config::Auto<int64_t>();
  config.batch_duration = 2.0;
  config.num_buckets = 3;
  config.min_audio_len_secs = 0.0;
  auto loader = load(config, speech());
  EXPECT_LT(loader->filtered().kept, 60);
  int64_t rows = 0;
  while (auto batch = loader->next()) {
    rows += static_cast<int64_t>(batch->sample_ids.size());
    EXPECT_LE(batch->padded_items, 32000);
  }
  EXPECT_EQ(rows, loader->filtered().kept);
}

TEST_F(BuildLoaderTest, PicturesFromFoldersToNormalisedPlanes) {
  for (int i = 0; i < 12; ++i) {
    std::vector<uint8_t> pixels(40 * 30 * 3, static_cast<uint8_t>(20 * i));
    folder_.write("pictures/class_" + std::to_string(i % 3) + "/" + std::to_string(i) + ".png",
                  encode_png({pixels.data(), 40, 30, 120}));
  }
  DatasetConfig config;
  config.path = Node::scalar((folder_ / "pictures").string());
  config.batch_size = 5;
  config.image_size = 16;
  config.shuffle = true;
  config.image_crop = "random_resized";
  config.image_flip = 0.5;
  TaskNeeds needs = of(image_kind());
  needs.batch_statistics = true;
  std::map<int64_t, float> expected;
  for (const char* cache : {"none", "memory"}) {
    for (int workers : {0, 3}) {
      config.cache = cache;
      config.num_workers = workers;
      auto loader = load(config, needs);
      std::map<int64_t, float> found;
      while (auto batch = loader->next()) {
        ASSERT_EQ(batch->find("image")->shape(), (Shape{static_cast<int64_t>(batch->sample_ids.size()), 3, 16, 16}));
        for (size_t r = 0; r < batch->sample_ids.size(); ++r) {
          EXPECT_EQ(batch->find("label")->as<int64_t>()[r], batch->sample_ids[r] / 4);
          found[batch->sample_ids[r]] = batch->find("image")->as<float>()[r * 3 * 256 + 17];
        }
      }
      if (expected.empty()) expected = found;
      EXPECT_EQ(found, expected);
    }
  }
  EXPECT_EQ(expected.size(), 12u);
}

// A step of a task's own between pixels and numbers, and one after: in that order, and on what they expect.
class Brighten : public SampleTransform {
 public:
  void apply(Sample& sample, const DrawKey&) const override {
    const Array& old = *sample.find("image");
    Array image = Array::empty(old.dtype(), old.shape());
    if (old.dtype() == Dtype::U8) {
      for (size_t i = 0; i < image.as<uint8_t>().size(); ++i) image.as<uint8_t>()[i] = 255;
    } else {
      for (size_t i = 0; i < image.as<float>().size(); ++i) image.as<float>()[i] = old.as<float>()[i] + 1000.0f;
    }
    sample.set("image", image);
  }
  std::string fingerprint() const override { return "brighten"; }
  bool random() const override { return true; }
};

TEST_F(BuildLoaderTest, PicturesAreTransformedBeforeAndAfterNormalisation) {
  std::vector<uint8_t> pixels(40 * 30 * 3, 20);
  folder_.write("pictures/a/0.png", encode_png({pixels.data(), 40, 30, 120}));
  DatasetConfig config;
  config.path = Node::scalar((folder_ / "pictures").string());
  config.image_size = 8;
  TaskNeeds needs = of(image_kind());
  needs.raw_transform = std::make_shared<Brighten>();
  needs.sample_transform = std::make_shared<Brighten>();
  const auto batch = load(config, needs)->next();
  EXPECT_NEAR(batch->find("image")->as<float>()[0], (1.0 - 0.485) / 0.229 + 1000.0, 1e-3);
}

TEST_F(BuildLoaderTest, WorkersWriteChannelsLast) {
  for (int i = 0; i < 6; ++i) {
    std::vector<uint8_t> pixels(40 * 30 * 3);
    for (size_t k = 0; k < pixels.size(); ++k) pixels[k] = static_cast<uint8_t>(k * 7 + static_cast<size_t>(i) * 31);
    folder_.write("pictures/a/" + std::to_string(i) + ".png", encode_png({pixels.data(), 40, 30, 120}));
  }
  DatasetConfig config;
  config.path = Node::scalar((folder_ / "pictures").string());
  config.batch_size = 4;
  config.image_size = 16;
  config.num_workers = 2;
  TaskNeeds needs = of(image_kind());
  const auto plain = load(config, needs)->next();
  needs.channels_last = true;
  const auto laid_out = load(config, needs)->next();
  const torch::Tensor expected = to_tensor(*plain->find("image")), tensor = to_tensor(*laid_out->find("image"));
  EXPECT_EQ(tensor.data_ptr(), laid_out->find("image")->data()) << "no copy";
  EXPECT_EQ(tensor.strides(), expected.contiguous(at::MemoryFormat::ChannelsLast).strides());
  EXPECT_TRUE(tensor.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(torch::equal(tensor, expected));
  EXPECT_FALSE(laid_out->find("label")->channels_last());
}

TEST_F(BuildLoaderTest, TensorsAreHandedOver) {
  TaskNeeds needs =
      of(memory_kind([](bool training) { return training ? testing_engine::numbered_source(20) : nullptr; }));
  needs.collate = testing_engine::numbered_collate();
  DatasetConfig config;
  config.batch_size = 6;
  auto loader = load(config, needs);
  EXPECT_EQ(loader->next()->find("label")->as<int64_t>()[3], 3);
}

TEST_F(BuildLoaderTest, RefusesKeysOfOtherKinds) {
  EXPECT_THROW(load(audio(), of(image_kind())), ConfigError);
  DatasetConfig config = audio();
  config.max_sequence_length = 10;
  EXPECT_THROW(load(config, speech()), ConfigError);
  EXPECT_EQ(kind_named("images")->name(), image_kind()->name());
  EXPECT_THROW(kind_named("video"), ConfigError);
  DatasetConfig noisy = audio();
  noisy.batch_augmentor.emplace();
  EXPECT_THROW(load(noisy, speech()), ConfigError) << "no task mixes it";
  DatasetConfig gone = audio();
  gone.manifest_filepath = Node::scalar((folder_ / "gone.json").string());
  EXPECT_THROW(load(gone, speech()), DataError);
}

TEST_F(BuildLoaderTest, PinnedMemoryIsRefusedWithoutADevice) {
  DatasetConfig config = audio();
  config.resolve({}, 3);
  config.pin_memory = true;  // as if nobody had looked at the machine
  if (!torch::cuda::is_available()) {
    EXPECT_THROW(build_loader(config, speech()), DeviceError);
  }
}

}  // namespace
}  // namespace redline::data
