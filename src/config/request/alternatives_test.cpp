// Which of several alternatives a job takes when files, presets and flags name different ones.
#include "config/request/alternatives.h"

#include <gtest/gtest.h>

#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::config_error;
using testing::Folder;

struct Generated {
  int num = 10;
  static Table<Generated> fields() {
    Table<Generated> t;
    t.add("num", &Generated::num, "How many.");
    return t;
  }
};

struct Source {
  Node manifest;
  std::optional<std::string> path;
  std::optional<Generated> synth;
  int workers = 0;
  static Table<Source> fields() {
    Table<Source> t;
    t.add("manifest", &Source::manifest, "A list of clips.").alias("clips");
    t.add("path", &Source::path, "Files.");
    t.group("synth", &Source::synth, "Made up.");
    t.add("workers", &Source::workers, "Threads.");
    t.one_of({"manifest", "path", "synth"});
    return t;
  }
};

struct Sources {
  Source train, validation;
  Schema schema;
  Sources() {
    schema.section("train", train);
    schema.section("validation", validation, true);
  }
  // "manifest", "path", "synth" or what is named together.
  static std::string given(const Source& source) {
    return std::string(source.manifest.is_null() ? "" : "manifest ") + (source.path ? "path " : "") +
           (source.synth ? "synth " : "");
  }
};

class AlternativesTest : public ::testing::Test {
 protected:
  std::string read(const std::string& yaml, std::vector<std::string> words, const char* preset = nullptr) {
    RequestSource source;
    source.file = folder_.write("x.yaml", yaml);
    source.overrides = std::move(words);
    if (preset != nullptr) source.preset = preset;
    sources_ = std::make_unique<Sources>();
    bind(read_request(source, sources_->schema), sources_->schema);
    return Sources::given(sources_->train);
  }
  Folder folder_;
  std::unique_ptr<Sources> sources_;
};

TEST_F(AlternativesTest, TheCommandLineReplacesWhatTheFileNames) {
  const std::string file = "train: {synth: {num: 5}, workers: 3}\nvalidation: {synth: {num: 2}}\n";
  EXPECT_EQ(read(file, {}), "synth ");
  EXPECT_EQ(read(file, {"train.manifest=mine.json"}), "manifest ");
  EXPECT_EQ(sources_->train.workers, 3) << "the rest of the section stays";
  EXPECT_EQ(Sources::given(sources_->validation), "synth ") << "and so does another section";
  EXPECT_EQ(read(file, {"train.clips=mine.json"}), "manifest ") << "under any name";
  EXPECT_EQ(read(file, {"train.path=data"}), "path ");
  EXPECT_EQ(read("train: {path: data}\n", {"train.synth.num=7"}), "synth ");
  EXPECT_EQ(sources_->train.synth->num, 7);
}

TEST_F(AlternativesTest, ABaseAPresetAndMarkersFollowTheSameRule) {
  folder_.write("base.yaml", "train: {synth: {num: 5}}\n");
  EXPECT_EQ(read("base: base.yaml\ntrain: {path: data}\n", {}), "path ");
  const std::string file = "train: {manifest: a.json}\npresets: {made: {train.synth.num: 3}}\n";
  EXPECT_EQ(read(file, {}, "made"), "synth ");
  EXPECT_EQ(read(file, {"train.path=data"}, "made"), "path ");
  EXPECT_EQ(read("train:\n  manifest: ???\n  synth: {num: 1}\n", {}), "synth ") << "??? names nothing";
  EXPECT_EQ(read("train: {synth: {num: 5}}\n", {"train.manifest=null"}), "synth ") << "null replaces nothing";
}

TEST_F(AlternativesTest, TwoInOneLayerAreAMistakeThatSaysHowToUnsetOne) {
  const std::string file = "train: {synth: {num: 5}, path: data}\n";
  const std::string error = config_error([&] { read(file, {}); });
  EXPECT_NE(error.find("train.path"), std::string::npos) << error;
  EXPECT_NE(error.find("train.synth=null"), std::string::npos) << error;
  EXPECT_NE(error.find("x.yaml:1"), std::string::npos) << error;
  EXPECT_EQ(read(file, {"train.synth=null"}), "path ");
  EXPECT_EQ(read(file, {"~train.path"}), "synth ");
  const std::string typed = config_error([&] { read("train: {workers: 1}\n", {"train.path=a", "train.manifest=b"}); });
  EXPECT_NE(typed.find("only one can be used"), std::string::npos) << typed;
}

}  // namespace
}  // namespace redline::config
