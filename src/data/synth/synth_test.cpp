#include "data/synth.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/codecs/audio.h"
#include "data/codecs/image.h"
#include "data/parquet/parquet_source.h"

namespace redline::data {
namespace {

namespace fs = std::filesystem;

class SynthTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("synth_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Every file below a folder, with its content.
  static std::map<std::string, std::string> contents(const fs::path& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder))
      if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = read_file(entry.path());
    return files;
  }
  static std::vector<nlohmann::json> manifest(const fs::path& path) {
    std::vector<nlohmann::json> lines;
    for (const auto& line : split(trim(read_file(path)), '\n')) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static SynthConfig config(const std::string& kind, int64_t num) {
    SynthConfig result;
    result.kind = kind;
    result.num = num;
    result.seed = 11;
    return result;
  }
  fs::path folder_;
};

TEST_F(SynthTest, SameOptionsSameBytesWithAnyNumberOfThreads) {
  for (const char* kind : {"speech", "sequences", "images"}) {
    SynthConfig one = config(kind, 12), four = one, other = one;
    one.num_threads = 1;
    four.num_threads = 4;
    other.seed = 12;
    one.rows_per_file = four.rows_per_file = 5;
    synthesize(one, folder_ / kind / "one");
    synthesize(four, folder_ / kind / "four");
    synthesize(other, folder_ / kind / "other");
    const auto first = contents(folder_ / kind / "one");
    EXPECT_GE(first.size(), 4u);
    EXPECT_EQ(first, contents(folder_ / kind / "four")) << kind;
    EXPECT_NE(first, contents(folder_ / kind / "other")) << kind;
  }
}

TEST_F(SynthTest, SpeechDecodesToItsManifest) {
  SynthConfig wanted = config("speech", 40);
  wanted.max_seconds = 6.0;
  const SynthResult made = synthesize(wanted, folder_);
  EXPECT_EQ(made.num_items, 48);
  std::set<double> durations;
  for (const auto& path : {made.train, made.validation, made.noise}) {
    for (const auto& entry : manifest(path)) {
      const std::string bytes = read_file(path.parent_path() / entry["audio_filepath"].get<std::string>());
      auto result = decode_audio(std::as_bytes(std::span(bytes)), "x", {});
      const Audio& audio = std::get<Audio>(result);
      EXPECT_EQ(audio.rate, 16000);
      EXPECT_NEAR(static_cast<double>(audio.samples.numel()) / 16000, entry["duration"].get<double>(), 1e-9);
      durations.insert(entry["duration"].get<double>());
      EXPECT_GE(entry["duration"].get<double>(), 1.2);
      EXPECT_LE(entry["duration"].get<double>(), 6.0);
      double energy = 0;
      for (const float x : audio.samples.as<float>()) energy += static_cast<double>(x) * x;
      EXPECT_GT(std::sqrt(energy / static_cast<double>(audio.samples.numel())), 0.01) << entry;
    }
  }
  EXPECT_GT(durations.size(), 30u);
}

// Speech has structure: neighbouring samples say more about each other than noise does, and loudness changes from sound
// to sound.
TEST_F(SynthTest, SpeechIsNotNoise) {
  SynthConfig wanted = config("speech", 10);
  wanted.format = "wav";
  const SynthResult made = synthesize(wanted, folder_);
  for (const auto& entry : manifest(made.train)) {
    const std::string bytes = read_file(folder_ / entry["audio_filepath"].get<std::string>());
    const Audio audio = std::get<Audio>(decode_audio(std::as_bytes(std::span(bytes)), "x", {}));
    const auto x = audio.samples.as<float>();
    double self = 0, neighbour = 0;
    for (size_t i = 1; i < x.size(); ++i) {
      self += static_cast<double>(x[i]) * x[i];
      neighbour += static_cast<double>(x[i]) * x[i - 1];
    }
    EXPECT_GT(neighbour / self, 0.5);
    std::vector<double> loudness;
    for (size_t at = 0; at + 800 <= x.size(); at += 800) {
      double sum = 1e-9;
      for (size_t i = at; i < at + 800; ++i) sum += static_cast<double>(x[i]) * x[i];
      loudness.push_back(std::log(sum));
    }
    const auto [low, high] = std::minmax_element(loudness.begin(), loudness.end());
    EXPECT_GT(*high - *low, 2.0);
    EXPECT_FALSE(entry["text"].get<std::string>().empty());
  }
}

TEST_F(SynthTest, SequencesCarryTheirClass) {
  SynthConfig wanted = config("sequences", 3000);
  wanted.num_classes = 3;
  const SynthResult made = synthesize(wanted, folder_);
  ParquetOptions options;
  options.path = made.train.string();
  const ParquetSource source(options);
  ASSERT_EQ(source.size(), 3000);
  measure::StageClock clock(1);
  // A classifier that only counts transitions, learned on the first half, must name the class of the second half.
  std::vector<std::map<std::pair<int, int>, double>> counts(3);
  int right = 0;
  std::vector<double> lengths;
  for (int64_t i = 0; i < source.size(); ++i) {
    auto result = source.read(i, clock.slot(0));
    const Sample& sample = std::get<Sample>(result);
    const auto tokens = sample.find("tokens")->as<int32_t>();
    const auto label = static_cast<size_t>(sample.find("label")->as<int64_t>()[0]);
    EXPECT_EQ(sample.find("length")->as<int32_t>()[0], static_cast<int32_t>(tokens.size()));
    lengths.push_back(static_cast<double>(tokens.size()));
    for (const int32_t token : tokens) ASSERT_TRUE(token >= 3 && token < 64);
    if (i < 1500) {
      for (size_t t = 1; t < tokens.size(); ++t) counts[label][{tokens[t - 1], tokens[t]}] += 1;
      continue;
    }
    std::vector<double> score(3);
    for (size_t c = 0; c < 3; ++c)
      for (size_t t = 1; t < tokens.size(); ++t) score[c] += std::log(counts[c][{tokens[t - 1], tokens[t]}] + 0.5);
    right += std::max_element(score.begin(), score.end()) - score.begin() == static_cast<int64_t>(label);
  }
  EXPECT_GT(right, 1400);
  std::nth_element(lengths.begin(), lengths.begin() + 1500, lengths.end());
  EXPECT_NEAR(lengths[1500], 90, 6);
}

TEST_F(SynthTest, ImagesCarryTheirClassAndHaveAnIndex) {
  for (const char* format : {"jpeg", "png"}) {
    SynthConfig wanted = config("images", 40);
    wanted.format = format;
    wanted.index = true;
    wanted.num_classes = 5;
    wanted.width = 64;
    wanted.height = 48;
    const SynthResult made = synthesize(wanted, folder_ / format);
    const auto lines = manifest(made.train / "index.jsonl");
    ASSERT_EQ(lines.size(), 40u);
    for (const auto& entry : lines) {
      const std::string bytes = read_file(made.train / entry["path"].get<std::string>());
      const auto image = std::get<Array>(decode_image(std::as_bytes(std::span(bytes)), "x", {}));
      EXPECT_EQ(image.shape(), (Shape{48, 64, 3}));
      EXPECT_TRUE(
          starts_with(entry["path"].get<std::string>(), "class_00" + std::to_string(entry["label"].get<int>())));
    }
  }
}

// A class must be learned: its pictures are not alike in what a glance sees (mean colour, brightness, contrast).
TEST_F(SynthTest, ImagesDoNotGiveTheirClassAway) {
  SynthConfig wanted = config("images", 320);
  wanted.format = "png";
  wanted.index = true;
  wanted.num_classes = 8;
  wanted.width = wanted.height = 48;
  const SynthResult made = synthesize(wanted, folder_ / "glance");
  std::vector<std::array<double, 6>> looks;
  std::vector<int> labels;
  for (const auto& entry : manifest(made.train / "index.jsonl")) {
    const std::string bytes = read_file(made.train / entry["path"].get<std::string>());
    const auto image = std::get<Array>(decode_image(std::as_bytes(std::span(bytes)), "x", {}));
    std::array<double, 6> look{};
    const auto pixels = image.as<uint8_t>();
    for (size_t i = 0; i < pixels.size(); ++i) {
      look[i % 3] += pixels[i];
      look[3 + i % 3] += static_cast<double>(pixels[i]) * pixels[i];
    }
    const double count = static_cast<double>(pixels.size()) / 3.0;
    for (size_t c = 0; c < 3; ++c) {
      look[c] /= count;
      look[3 + c] = std::sqrt(look[3 + c] / count - look[c] * look[c]);
    }
    looks.push_back(look);
    labels.push_back(entry["label"].get<int>());
  }
  int right = 0;
  for (size_t i = 0; i < looks.size(); ++i) {
    double best = 1e300;
    int label = -1;
    for (size_t j = 0; j < looks.size(); ++j) {
      double apart = i == j ? 1e299 : 0.0;
      for (size_t c = 0; c < 6; ++c) apart += (looks[i][c] - looks[j][c]) * (looks[i][c] - looks[j][c]);
      if (apart < best) best = apart, label = labels[j];
    }
    right += label == labels[i];
  }
  EXPECT_LT(right, 320 * 0.3);  // chance is an eighth
}

TEST_F(SynthTest, TheCacheMakesASetOnce) {
  SynthConfig wanted = config("sequences", 50);
  const SynthResult first = synthesize_cached(wanted, folder_);
  const auto time = fs::last_write_time(first.train / "part-00000.parquet");
  wanted.num_threads = 3;  // does not shape the data
  const SynthResult again = synthesize_cached(wanted, folder_);
  EXPECT_EQ(again.train, first.train);
  EXPECT_EQ(again.num_bytes, first.num_bytes);
  EXPECT_EQ(fs::last_write_time(again.train / "part-00000.parquet"), time);
  wanted.num = 51;
  EXPECT_NE(synthesize_cached(wanted, folder_).train, first.train);
  fs::remove(first.train.parent_path() / "synth.json");  // as after a crash
  wanted.num = 50;
  EXPECT_TRUE(fs::exists(synthesize_cached(wanted, folder_).train / "part-00000.parquet"));
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find("draft"), std::string::npos);
}

// Processes on an empty cache, one of them killed while it generates: the others wait and share one set, and nothing of
// the dead one stays.
TEST_F(SynthTest, ProcessesThatStartTogetherShareOneSet) {
  const SynthConfig wanted = config("speech", 40);
  const auto start = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      try {
        synthesize_cached(wanted, folder_);
        ::_exit(0);
      } catch (...) {
        ::_exit(1);
      }
    }
    return child;
  };
  const auto folders = [&] {  // the set, drafts, what was put aside
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_))
      if (entry.is_directory()) names.push_back(entry.path().filename().string());
    return names;
  };
  fs::create_directories(folder_);
  const pid_t first = start();
  while (folders().empty()) ::usleep(100);
  std::vector<pid_t> others;
  for (int i = 0; i < 3; ++i) others.push_back(start());
  ::kill(first, SIGKILL);
  ::waitpid(first, nullptr, 0);
  for (const pid_t child : others) {
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(folders().size(), 1u) << join(folders(), ", ");
  const SynthResult shared = synthesize_cached(wanted, folder_);
  const SynthResult alone = synthesize_cached(wanted, folder_ / "alone");
  EXPECT_EQ(contents(shared.train.parent_path() / "train"), contents(alone.train.parent_path() / "train"));
}

TEST_F(SynthTest, ContradictionsAreRefused) {
  SynthConfig wanted = config("music", 5);
  EXPECT_THROW(synthesize(wanted, folder_), ConfigError);
  wanted = config("speech", 5);
  wanted.format = "png";
  EXPECT_THROW(synthesize(wanted, folder_), ConfigError);
  wanted = config("speech", 5);
  wanted.min_seconds = 9;
  wanted.max_seconds = 3;
  EXPECT_THROW(synthesize(wanted, folder_), ConfigError);
  wanted = config("speech", 0);
  EXPECT_THROW(synthesize(wanted, folder_), ConfigError);
}

}  // namespace
}  // namespace redline::data
