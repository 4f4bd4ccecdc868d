#include "config/request/paths.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "config/job.h"

namespace redline::config {
namespace {

namespace fs = std::filesystem;

struct PathsExample {
  std::optional<std::string> file;
  Node files;
  std::string word;
  static Table<PathsExample> fields() {
    Table<PathsExample> t;
    t.add("file", &PathsExample::file, "One file.").path();
    t.add("files", &PathsExample::files, "Files.").paths();
    t.add("word", &PathsExample::word, "No file.");
    return t;
  }
};

class Paths : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(::testing::TempDir()) / ("paths_" + std::to_string(::getpid()));
    fs::remove_all(root_);
    fs::create_directories(root_ / "recipes/data");
    fs::create_directories(root_ / "only_here");
    std::ofstream(root_ / "recipes/data/a.json") << "x";
    std::ofstream(root_ / "only_here/b.json") << "x";
    before_ = fs::current_path();
    fs::current_path(root_);
  }
  void TearDown() override {
    fs::current_path(before_);
    fs::remove_all(root_);
  }
  Resolved read(const std::string& yaml, const std::vector<std::string>& words = {}, const std::string& preset = {}) {
    std::ofstream(root_ / "recipes/job.yaml") << yaml;
    RequestSource source;
    source.file = "recipes/job.yaml";
    source.overrides = words;
    if (!preset.empty()) source.preset = preset;
    Schema schema;
    schema.section("", example_);
    return bind(read_request(source, schema), schema);
  }
  std::string here(const std::string& name) const { return (fs::current_path() / name).string(); }

  PathsExample example_;
  fs::path root_, before_;
};

TEST_F(Paths, ARecipesNamesAreOfItsFolder) {
  read("file: data/a.json\nfiles: [data/a.json, /abs/x.json, [../only_here/b.json]]\nword: data/a.json\n");
  EXPECT_EQ(example_.file, here("recipes/data/a.json"));
  ASSERT_EQ(example_.files.items().size(), 3u);
  EXPECT_EQ(example_.files.items()[0].text(), here("recipes/data/a.json"));
  EXPECT_EQ(example_.files.items()[1].text(), "/abs/x.json");
  EXPECT_EQ(example_.files.items()[2].items()[0].text(), here("only_here/b.json"));
  EXPECT_EQ(example_.word, "data/a.json") << "what names no file stays";
}

TEST_F(Paths, WhatIsOnlyInTheCurrentFolderIsTakenFromThere) {
  read("file: only_here/b.json\nfiles: only_here/part_{0..3}.json\n");
  EXPECT_EQ(example_.file, here("only_here/b.json"));
  EXPECT_EQ(example_.files.text(), here("only_here/part_{0..3}.json"));
}

TEST_F(Paths, WhatIsNowhereIsSearchedBesideTheRecipe) {
  read("file: nowhere.json\n");
  EXPECT_EQ(example_.file, here("recipes/nowhere.json"));
}

TEST_F(Paths, AFlagsNamesAreOfTheCurrentFolder) {
  read("file: x\n", {"file=data/a.json", "files=a.json,{b,c}.json"});
  EXPECT_EQ(example_.file, here("data/a.json"));
  EXPECT_EQ(example_.files.text(), here("a.json") + "," + here("{b,c}.json"));
}

TEST_F(Paths, ReferencesAndPresetsCountByWhereThePathIsWritten) {
  read("files: data/${word}\nword: a.json\n");
  EXPECT_EQ(example_.files.text(), here("recipes/data/a.json"));
  read("presets: {mine: {file: data/a.json}}\n", {}, "mine");
  EXPECT_EQ(example_.file, here("recipes/data/a.json"));
}

TEST_F(Paths, NullAndMissingMarkersStay) {
  read("file: null\nfiles: ???\n");
  EXPECT_FALSE(example_.file);
}

TEST_F(Paths, HashesFollowTheNameOrThePlace) {
  const Resolved one = read("file: data/a.json\n"), other = read("file: ../only_here/a.json\n"),
                 third = read("file: data/b.json\n");
  EXPECT_EQ(one.hash(), other.hash()) << "a resumed run may find its data elsewhere";
  EXPECT_NE(one.hash(), third.hash());
  EXPECT_NE(one.hash({}, FilesBy::Place), other.hash({}, FilesBy::Place)) << "another folder is another job";
  const uint64_t before = one.hash({}, FilesBy::Place);
  fs::current_path(root_ / "recipes");
  EXPECT_NE(one.hash({}, FilesBy::Place), before);
  fs::current_path(root_);
}

}  // namespace
}  // namespace redline::config
