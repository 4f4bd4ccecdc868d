#include "config/yaml_writer.h"

#include <gtest/gtest.h>

#include "config/job.h"
#include "config/request/references.h"

namespace redline::config {
namespace {

Node text_value(std::string text) { return Node::scalar(std::move(text), true); }

TEST(YamlWriter, QuotesOnlyWhatCouldBeMistaken) {
  EXPECT_EQ(write_yaml_flow(text_value("bf16-mixed")), "bf16-mixed");
  EXPECT_EQ(write_yaml_flow(text_value("/data/train manifest.json")), "\"/data/train manifest.json\"");
  EXPECT_EQ(write_yaml_flow(text_value("32")), "\"32\"");
  EXPECT_EQ(write_yaml_flow(Node::scalar("32")), "32");
  EXPECT_EQ(write_yaml_flow(text_value("yes")), "\"yes\"");
  EXPECT_EQ(write_yaml_flow(text_value("null")), "\"null\"");
  EXPECT_EQ(write_yaml_flow(text_value("???")), "\"???\"");
  EXPECT_EQ(write_yaml_flow(Node::scalar("???")), "???");
  EXPECT_EQ(write_yaml_flow(text_value("")), "\"\"");
  EXPECT_EQ(write_yaml_flow(text_value("00:10:00:00")), "\"00:10:00:00\"");
  EXPECT_EQ(write_yaml_flow(text_value("2026-11-15")), "\"2026-11-15\"");
  EXPECT_EQ(write_yaml_flow(text_value("${a}")), "\"\\\\${a}\"");
  EXPECT_EQ(write_yaml_flow(Node()), "null");
  EXPECT_EQ(write_yaml_flow(Node::list({Node::scalar("1"), text_value("a, b"), Node::map({{"k: v", Node()}})})),
            "[1, \"a, b\", {\"k: v\": null}]");
}

TEST(YamlWriter, BlocksWithOrigins) {
  Node value = Node::scalar("1");
  value.origin = {OriginKind::File, "evil\nname.yaml", 3, 4, "", 0, 0};
  const Node root = Node::map({{"a", Node::map({{"b", value}, {"c", Node::map()}})}, {"d", Node::list()}});
  EXPECT_EQ(write_yaml(root, true), "a:\n  b: 1  # evil\\x0aname.yaml:3:4\n  c: {}  # default\nd: []  # default\n");
  EXPECT_EQ(write_yaml(root, false), "a:\n  b: 1\n  c: {}\nd: []\n");
}

TEST(YamlWriter, Json) {
  const Node root =
      Node::map({{"a", Node::list({Node::scalar("1"), Node::scalar("1e-3"), Node::scalar("inf"), Node::scalar("yes")})},
                 {"b\"", text_value("1\n")},
                 {"c", Node()},
                 {"d", Node::map()}});
  EXPECT_EQ(write_json(root),
            "{\n  \"a\": [\n    1,\n    0.001,\n    \"inf\",\n    true\n  ],\n  \"b\\\"\": \"1\\n\",\n  \"c\": null,\n "
            " \"d\": {}\n}\n");
}

// What is written reads back equal, whatever is in it.
TEST(YamlWriter, RoundTripOfStrangeTexts) {
  std::vector<std::string> texts = {"",
                                    " ",
                                    "a",
                                    "a b",
                                    " lead",
                                    "trail ",
                                    "a: b",
                                    "a #b",
                                    "#c",
                                    "-",
                                    "- x",
                                    "?",
                                    "? x",
                                    ":",
                                    "*a",
                                    "&a",
                                    "!t",
                                    "|",
                                    ">",
                                    "%",
                                    "@",
                                    "`",
                                    "'",
                                    "\"",
                                    "\\",
                                    "a\\b",
                                    "a\nb",
                                    "a\tb",
                                    "\r",
                                    "\x01",
                                    "\x7f",
                                    "é中🎧",
                                    "\xc2\x85",
                                    "\xc2\xa0",
                                    "\xe2\x80\xa8",
                                    "\xef\xbb\xbf",
                                    "{}",
                                    "[]",
                                    "a,b",
                                    "true",
                                    "1",
                                    "1.",
                                    "0x10",
                                    "~",
                                    "null",
                                    "=",
                                    "<<",
                                    "???",
                                    "${a}",
                                    "\\${a}",
                                    "\\\\${a.b}",
                                    "x${y",
                                    "$",
                                    "${",
                                    "1e5",
                                    ".inf",
                                    "nan",
                                    "1_000",
                                    "+5",
                                    "0o7",
                                    "2026-11-15",
                                    "12:30",
                                    "---",
                                    "...",
                                    "yes",
                                    "No",
                                    "auto"};
  for (const std::string& text : texts) {
    Node root = Node::map({{"key", text_value(text)},
                           {"list", Node::list({text_value(text), text_value(text)})},
                           {"m", Node::map({{text, Node()}})}});
    Node back = read_yaml_text(write_yaml(root, true), "dump.yaml");
    resolve_references(back, {});
    EXPECT_EQ(back, root) << write_yaml(root, false);
  }
}

}  // namespace
}  // namespace redline::config
