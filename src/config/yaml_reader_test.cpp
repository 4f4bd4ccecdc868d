#include <gtest/gtest.h>

#include "config/job.h"
#include "config/request/limits.h"
#include "config/testing/test_files.h"

namespace redline::config {
namespace {

using testing::config_error;

std::string reading(std::string_view text) {
  return config_error([&] { read_yaml_text(text, "x.yaml"); });
}

TEST(YamlReader, ReadsValuesWithTheirPlaces) {
  const Node root = read_yaml_text("a: 1\nb:\n  c: [x, 'y', \"2\"]\n  d: ~\ne: |\n  two\n  lines\n", "x.yaml");
  EXPECT_EQ(root.find_path("a")->origin.text(), "x.yaml:1:4");
  EXPECT_EQ(root.find_path("b.c")->origin.text(), "x.yaml:3:6");
  EXPECT_EQ(root.find_path("b")->origin.key().text(), "x.yaml:2:1");
  EXPECT_EQ(root.find_path("b.c.1")->origin.text(), "x.yaml:3:10");
  EXPECT_FALSE(root.find_path("b.c.0")->quoted());
  EXPECT_TRUE(root.find_path("b.c.1")->quoted());
  EXPECT_TRUE(root.find_path("b.d")->is_null());
  EXPECT_EQ(root.find_path("e")->text(), "two\nlines\n");
}

TEST(YamlReader, EmptyFilesAreEmptyMaps) {
  EXPECT_TRUE(read_yaml_text("", "x.yaml").is_map());
  EXPECT_TRUE(read_yaml_text("# only a comment\n", "x.yaml").is_map());
  EXPECT_EQ(read_yaml_text("\xef\xbb\xbf"
                           "a: 1\r\nb: 2\r\n",
                           "x.yaml")
                .find("b")
                ->text(),
            "2");
}

TEST(YamlReader, ErrorsSayWhere) {
  EXPECT_EQ(reading("a: 1\nb: 2\na: 3\n"),
            "x.yaml:3:1: the key 'a' is given twice, first on line 1; remove one of them.");
  EXPECT_EQ(reading("m:\n  k:\n    z: 1\n  k: 2\n"),
            "x.yaml:4:3: the key 'k' is given twice, first on line 2; remove one of them.");
  EXPECT_EQ(reading("a: &x 1\n"),
            "x.yaml:1:4: YAML anchors and aliases (&name, *name) are not read; write ${path.to.key} instead.");
  EXPECT_EQ(reading("a: !!python/object:os.system x\n"),
            "x.yaml:1:4: the YAML tag 'tag:yaml.org,2002:python/object:os.system' is not read; remove it.");
  EXPECT_EQ(reading("a: 1\n---\nb: 2\n"),
            "x.yaml:1:1: the file holds more than one YAML document; keep one (remove the '---' in between).");
  EXPECT_EQ(reading("? [a]\n: 1\n"),
            "x.yaml:1:3: a key must be one word, found a list or map; check the brackets and the indentation.");
  EXPECT_EQ(reading(": 1\n"), "x.yaml:1:1: a key is missing in front of the ':'; write the key's name there.");
  EXPECT_NE(reading("a: [1, 2\nb: 3\n").find("x.yaml:2:"), std::string::npos) << reading("a: [1, 2\nb: 3\n");
  EXPECT_NE(reading("a: b: c\n").find("this is not valid YAML"), std::string::npos);
  EXPECT_NE(reading("a:\n\tb: 1\n").find("x.yaml:"), std::string::npos);
}

TEST(YamlReader, BinaryIsNotYaml) {
  EXPECT_EQ(reading(std::string_view("a: 1\nb: \0\n", 10)),
            "x.yaml:2:4: this is not a text file in UTF-8; check that it is the file you meant.");
  EXPECT_NE(reading("PK\x03\x04"), "no error");
  EXPECT_NE(reading("\xff\xfe"
                    "a"),
            "no error");
  EXPECT_NE(reading("\x7f"
                    "ELF"),
            "no error");
}

// Ways to make a reader spend memory, time or stack; each must end in one sentence, quickly.
TEST(YamlReader, HostileFilesAreStopped) {
  EXPECT_NE(reading(std::string(kMaxFileBytes + 1, '#')).find("larger than the limit of 1 MiB"), std::string::npos);
  EXPECT_NE(reading("a: " + std::string(100'000, '[') + std::string(100'000, ']')).find("nested more than 64 deep"),
            std::string::npos);
  EXPECT_NE(reading(std::string(100'000, '[')), "no error");
  EXPECT_NE(reading(std::string(100'000, '{')), "no error");
  EXPECT_NE(reading("a: " + std::string(100'000, '"')), "no error");
  std::string steps;
  for (int i = 0; i < 200; ++i) steps += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  EXPECT_NE(reading(steps).find("nested more than 64 deep"), std::string::npos);
  std::string many = "[";
  for (int i = 0; i < 150'000; ++i) many += "1,";
  EXPECT_NE(reading(many + "]").find("more than 100000 values"), std::string::npos);
  std::string dashes;
  for (int i = 0; i < 5'000; ++i) dashes += "- ";
  EXPECT_NE(reading(dashes).find("nested more than 64 deep"), std::string::npos);
  const std::string bomb =
      "a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: "
      "[*c,*c,*c,*c]\n";
  EXPECT_NE(reading(bomb).find("anchors and aliases"), std::string::npos);
}

TEST(YamlReader, Files) {
  const testing::Folder folder;
  const auto reading_file = [&](const std::filesystem::path& path) {
    return config_error([&] { read_yaml_file(path); }, folder.path());
  };
  folder.write("nest_fast.yaml", "trainer: {devices: 1}\n");
  EXPECT_EQ(read_yaml_file(folder.path() / "nest_fast.yaml").find_path("trainer.devices")->text(), "1");
  EXPECT_EQ(reading_file(folder.path() / "nest_fsat.yaml"),
            "There is no file 'nest_fsat.yaml'; did you mean 'nest_fast.yaml'?");
  EXPECT_EQ(reading_file(folder.path() / "nest_fast"), "There is no file 'nest_fast'; did you mean 'nest_fast.yaml'?");
  EXPECT_EQ(reading_file(folder.path() / "other"), "There is no file 'other'; check the path.");
  EXPECT_EQ(
      reading_file(folder.path() / "lss_swin.py"),
      "'lss_swin.py' is a Python config, which would have to be run to be read; use a YAML recipe instead, such as "
      "recipes/lss_swin.yaml.");
  folder.write("list.yaml", "- 1\n- 2\n");
  EXPECT_EQ(reading_file(folder.path() / "list.yaml"),
            "list.yaml:1:1: a recipe is a map of keys (trainer:, model:, ...), found a list of 2; check that it is the "
            "file you meant.");
  folder.write("huge.yaml", std::string(10 << 20, 'a'));
  EXPECT_EQ(
      reading_file(folder.path() / "huge.yaml"),
      "'huge.yaml' is larger than the limit of 1 MiB for this kind of file; check that it is the file you meant.");
  EXPECT_NE(reading_file(folder.path()).find("Is a directory"), std::string::npos);
}

}  // namespace
}  // namespace redline::config
