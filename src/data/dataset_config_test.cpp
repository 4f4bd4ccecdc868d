#include "data/dataset_config.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "config/job.h"
#include "core/error.h"

namespace redline::data {
namespace {

// Binds the text of a model.train_ds section.
DatasetConfig bound(const std::string& section) {
  std::string text = "model:\n  train_ds:\n";
  for (size_t begin = 0; begin < section.size();) {
    const size_t end = std::min(section.find('\n', begin), section.size());
    text += "    " + section.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  DatasetConfig config;
  config::Schema schema;
  schema.section("model.train_ds", DatasetConfig::training_fields().component(), &config);
  config::bind(config::read_yaml_text(text, "test.yaml"), schema);
  return config;
}

std::string config_refusal(const std::string& section) {
  try {
    DatasetConfig config = bound(section);
    config.resolve({}, 0);
    config.check();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// The train_ds block of NeMo's nest_fast-conformer.yaml, every key at its default.
constexpr const char* kNemo = R"(manifest_filepath: train.json
noise_manifest: null
sample_rate: 16000
batch_size: 8
shuffle: true
num_workers: 8
pin_memory: true
use_start_end_token: false
trim_silence: false
max_duration: 60.0
min_duration: 1.0
drop_last: true
is_concat: false
concat_sampling_technique: 'temperature'
concat_sampling_temperature: 1.0
is_tarred: false
tarred_audio_filepaths: null
shuffle_n: 2048
bucketing_strategy: "synced_randomized"
bucketing_batch_size: null
batch_augmentor:
  _target_: nemo.collections.asr.modules.ssl_modules.MultiSpeakerNoiseAugmentation
  prob: 0.5
  noise_ratio: 0.5
  min_r_speech: -5.0
  max_r_speech: 5.0
  min_r_noise: -5.0
  max_r_noise: 20.0
  min_mix_rate: 0.5
  max_mix_rate: 0.5
  min_num_segments: 1
  max_num_segments: 1
  min_num_speakers: 1
  max_num_speakers: 1
)";

TEST(DatasetConfig, ReadsNemosTrainDsUnchanged) {
  DatasetConfig config = bound(kNemo);
  MachineFacts machine;
  machine.allowed_cpus = 16;
  config.resolve(machine, 42);
  EXPECT_NO_THROW(config.check());
  EXPECT_EQ(config.batch_size.value(), 8);
  EXPECT_EQ(config.micro_batch_size.value(), 8);
  EXPECT_EQ(config.num_workers.value(), 8);
  EXPECT_EQ(config.seed.value(), 42);
  EXPECT_FALSE(config.pin_memory) << "no device: one line, and ordinary memory";
  EXPECT_EQ(*config.max_duration, 60.0);
  ASSERT_TRUE(config.batch_augmentor);
  EXPECT_EQ(config.batch_augmentor->prob, 0.5);
  EXPECT_EQ(config.batch_augmentor->max_num_speakers, 1);
  EXPECT_FALSE(config.batch_augmentor->reference_quirks);
}

TEST(DatasetConfig, RefusesByNameWhatItCannotDo) {
  for (const char* line : {"trim_silence: true", "use_start_end_token: true", "augmentor: {x: 1}",
                           "quadratic_duration: 15", "normalize_db: -20"}) {
    const std::string words = config_refusal(std::string("manifest_filepath: a.json\n") + line);
    const std::string key = std::string(line).substr(0, std::string(line).find(':'));
    EXPECT_NE(words.find(key), std::string::npos) << line << " -> " << words;
  }
}

TEST(DatasetConfig, RefusesContradictions) {
  const std::string base = "manifest_filepath: a.json\n";
  EXPECT_NE(config_refusal(""), "") << "no data";
  EXPECT_NE(config_refusal(base + "path: x"), "") << "two kinds of data";
  EXPECT_NE(config_refusal(base + "min_duration: 5\nmax_duration: 2"), "");
  EXPECT_NE(config_refusal(base + "is_tarred: true"), "");
  EXPECT_NE(config_refusal(base + "tarred_audio_filepaths: a.tar"), "");
  EXPECT_NE(config_refusal(base + "bucketing_batch_size: 4"), "") << "needs batch_size 1";
  EXPECT_EQ(config_refusal(base + "bucketing_batch_size: 4\nbatch_size: 1"), "");
  EXPECT_NE(config_refusal(base + "batch_duration: 60\nbatch_tokens: 5"), "");
  EXPECT_NE(config_refusal(base + "use_dynamic_padding: false"), "");
  EXPECT_EQ(config_refusal(base + "use_dynamic_padding: false\nmax_duration: 20"), "");
  EXPECT_NE(config_refusal(
                base + "is_concat: true\nconcat_sampling_technique: random\nconcat_sampling_probabilities: [0.5, 0.2]"),
            "");
  EXPECT_NE(config_refusal(base + "image_scale: [0.5]"), "");
  EXPECT_NE(config_refusal(base + "image_std: [0, 1, 1]"), "");
  EXPECT_NE(config_refusal(base + "batch_augmentor: {min_r_noise: 30}"), "");
  EXPECT_NE(config_refusal(base + "num_workers: 65"), "");
  EXPECT_NE(config_refusal(base + "batch_size: 0"), "");
  EXPECT_EQ(config_refusal(base + "batch_size: 0\nbatch_duration: 60"), "");
}

TEST(DatasetConfig, ResolvesEveryAuto) {
  DatasetConfig config = bound("manifest_filepath: a.json\nnum_buckets: 4");
  MachineFacts machine;
  machine.allowed_cpus = 8;
  config.resolve(machine, 7);
  EXPECT_EQ(config.num_workers.value(), 4) << "half of the cores on a CPU";
  EXPECT_TRUE(config.use_bucketing.value());
  EXPECT_TRUE(config.allow_absolute.value());
  DatasetConfig by_length = bound("manifest_filepath: a.json\nbatch_duration: 120\nuse_bucketing: true");
  by_length.resolve(machine, 7);
  EXPECT_EQ(by_length.batch_size.value(), 0);
  EXPECT_EQ(by_length.num_buckets, 8);
  DatasetConfig tarred = bound("manifest_filepath: a.json\nis_tarred: true\ntarred_audio_filepaths: a.tar");
  tarred.resolve(machine, 7);
  EXPECT_FALSE(tarred.allow_absolute.value());
}

TEST(DatasetConfig, AliasesOfTheGuides) {
  const DatasetConfig config =
      bound("path: x\nsamples_per_gpu: 6\nworkers_per_gpu: 12\nuse_lhotse: true\nshuffle_buffer_size: 100");
  EXPECT_EQ(config.batch_size.value(), 6);
  EXPECT_EQ(config.num_workers.value(), 12);
}

TEST(DatasetConfig, TunableRowsSayWhatTheyChange) {
  std::map<std::string, config::Effect> tunable;
  const auto component = DatasetConfig::training_fields().component();
  for (const auto& row : component->rows) {
    EXPECT_FALSE(row->sentence.empty()) << row->name;
    if (row->tunable) tunable[row->name] = row->effect;
  }
  using config::Effect;
  const std::map<std::string, Effect> expected{
      {"batch_size", Effect::Optimisation}, {"micro_batch_size", Effect::Nothing},
      {"num_workers", Effect::Nothing},     {"prefetch_factor", Effect::Nothing},
      {"pin_memory", Effect::Nothing},      {"use_dynamic_padding", Effect::Numerics},
      {"use_bucketing", Effect::Order},     {"num_buckets", Effect::Order},
      {"is_tarred", Effect::Order},         {"cache", Effect::Nothing},
      {"decode", Effect::Numerics}};
  // max_sequence_length cuts what is trained on: a switch for the user, not for a search.
  EXPECT_EQ(tunable, expected);
}

TEST(NameLists, OnePartPerInnerList) {
  using Lists = std::vector<std::vector<std::string>>;
  const auto lists = [](const std::string& yaml) {
    const config::Node root = config::read_yaml_text("x: " + yaml, "t");
    return name_lists(*root.find("x"), "x");
  };
  EXPECT_EQ(lists("a.json"), (Lists{{"a.json"}}));
  EXPECT_EQ(lists("a.json,b.json"), (Lists{{"a.json", "b.json"}}));
  EXPECT_EQ(lists("[a.json, 'b_{0..1}.json']"), (Lists{{"a.json", "b_0.json", "b_1.json"}}));
  EXPECT_EQ(lists("[[a.json, b.json], [c.json]]"), (Lists{{"a.json", "b.json"}, {"c.json"}}));
  EXPECT_EQ(lists("x__OP_0..1_CL_.tar"), (Lists{{"x_0.tar", "x_1.tar"}}));
  EXPECT_EQ(lists("'{a,b}.json'"), (Lists{{"a.json", "b.json"}}));
  EXPECT_TRUE(name_lists(config::Node(), "x").empty());
  EXPECT_THROW(lists("[]"), ConfigError);
  EXPECT_THROW(lists("[a, [b]]"), ConfigError);
  EXPECT_THROW(lists("{a: 1}"), ConfigError);
  EXPECT_THROW(lists("?\?\?"), ConfigError) << "NeMo's marker for a value that must be given";
}

}  // namespace
}  // namespace redline::data
