#include "config/request/references.h"

#include <gtest/gtest.h>

#include "config/job.h"
#include "config/testing/test_files.h"
#include "config/yaml_writer.h"

namespace redline::config {
namespace {

using testing::config_error;

std::string resolved(const std::string& yaml) {
  Node tree = read_yaml_text(yaml, "x.yaml");
  resolve_references(tree, {});
  return write_yaml_flow(tree);
}
std::string resolving_error(const std::string& yaml) {
  return config_error([&] { resolved(yaml); });
}

TEST(References, Table) {
  struct Case {
    const char *yaml, *expected;
  };
  for (const Case& c : {
           Case{"a: 1\nb: ${a}", "{a: 1, b: 1}"},
           Case{"a: {b: {c: x}}\nd: ${a.b.c}", "{a: {b: {c: x}}, d: x}"},
           Case{"a: [1, 2]\nb: ${a}", "{a: [1, 2], b: [1, 2]}"},
           Case{"a: [7, 8]\nb: ${a.1}\nc: ${a[0]}", "{a: [7, 8], b: 8, c: 7}"},
           Case{"b: ${a.x}\na: {x: '${c}'}\nc: 3", "{b: 3, a: {x: 3}, c: 3}"},
           Case{"a: run\nb: /data/${a}/x-${a}.json", "{a: run, b: /data/run/x-run.json}"},
           Case{"m: {a: 1, b: '${.a}', c: {d: '${..a}'}}", "{m: {a: 1, b: 1, c: {d: 1}}}"},
           Case{"a: '1'\nb: ${a}", "{a: \"1\", b: \"1\"}"},
           Case{"k: b\na: {b: 5}\nc: ${a.${k}}", "{k: b, a: {b: 5}, c: 5}"},
           Case{"a: ~\nb: ${a}\nc: x${a}", "{a: null, b: null, c: xnull}"},
           Case{"a: ???\nb: ${a}\nc: x${a}", "{a: \"???\", b: \"???\", c: \"???\"}"},
           Case{"a: {x: 1, z: '${.x}'}\nb: ${a}\nc: ${b.z}", "{a: {x: 1, z: 1}, b: {x: 1, z: 1}, c: 1}"},
           Case{"a: 'x \\${b} y'", "{a: \"x \\\\${b} y\"}"},
           Case{"a: '{epoch}-{step}'", "{a: \"{epoch}-{step}\"}"},
           Case{"a: 5$\nb: $x", "{a: \"5$\", b: \"$x\"}"},
           Case{"a: '${ b }'\nb: 2", "{a: 2, b: 2}"},
       }) {
    EXPECT_EQ(resolved(c.yaml), c.expected) << c.yaml;
  }
}

TEST(References, ALiteralIsNotResolvedTwice) {
  EXPECT_EQ(resolved("a: '\\${b}'\nb: 1\nc: ${a}\nd: 'x${c}'"),
            "{a: \"\\\\${b}\", b: 1, c: \"\\\\${b}\", d: \"x\\\\${b}\"}");
}

TEST(References, CirclesAreNamed) {
  EXPECT_EQ(resolving_error("a: ${a}"),
            "x.yaml:1:4: the reference goes in a circle: a -> a; give one of them a value.");
  EXPECT_EQ(resolving_error("a: ${b}\nb: ${c.d}\nc: {d: 'x${a}'}"),
            "x.yaml:1:4: the reference goes in a circle: a -> b -> c.d -> a; give one of them a value.");
  EXPECT_NE(resolving_error("a: {b: '${a}'}").find("goes in a circle"), std::string::npos);
  EXPECT_NE(resolving_error("a: '${.b}'\nb: '${a${b}}'").find("goes in a circle"), std::string::npos);
}

TEST(References, OtherErrors) {
  EXPECT_EQ(resolving_error("model: {rate: 1}\nb: ${model.rat}"),
            "x.yaml:2:4: ${model.rat} names a key that is not there; add it or write the value.");
  EXPECT_EQ(resolving_error("a: ${x"),
            "x.yaml:1:4: '${' has no closing '}' in '${x'; add it, or write \\${ to keep the text.");
  EXPECT_EQ(resolving_error("a: ${oc.env:HOME}"),
            "x.yaml:1:4: ${oc.env:HOME} calls a resolver, and redline runs none; write the value, or set it on the "
            "command line.");
  EXPECT_EQ(resolving_error("a: [1]\nb: x${a}"),
            "x.yaml:2:4: ${a} is a list of 1 and cannot stand inside a text; name one of its values.");
  EXPECT_EQ(resolving_error("a: ${....b}"), "x.yaml:1:4: ${....b} goes above the top of the file; remove a dot.");
  EXPECT_NE(resolving_error("a: ${}"), "no error");
}

TEST(References, RawNamesAndDefaultsAreTheFallback) {
  Node tree = read_yaml_text("b: ${old}\nc: ${given.by.default}\n", "x.yaml");
  Node raw = read_yaml_text("old: 7\n", "x.yaml");
  resolve_references(tree, {&raw, [](const std::string& path) -> std::optional<Node> {
                              if (path == "given.by.default") return Node::scalar("9");
                              return std::nullopt;
                            }});
  EXPECT_EQ(write_yaml_flow(tree), "{b: 7, c: 9}");
  Node wrong = read_yaml_text("b: ${odl}\n", "x.yaml");
  EXPECT_EQ(config_error([&] {
              resolve_references(wrong, {&raw, {}});
            }),
            "x.yaml:1:4: ${odl} names a key that is not there; did you mean 'old'?");
}

// Expansion is where a small file becomes a large one.
TEST(References, BombsAreStopped) {
  std::string lists = "a0: [x, x]\n", texts = "a0: xxxxxxxxxxxxxxxx\n", chain = "a0: x\n";
  for (int i = 1; i < 40; ++i) {
    const std::string before = "${a" + std::to_string(i - 1) + "}";
    lists += "a" + std::to_string(i) + ": ['" + before + "', '" + before + "']\n";
    texts += "a" + std::to_string(i) + ": " + before + before + "\n";
  }
  for (int i = 20'000; i > 0; --i) chain += "a" + std::to_string(i) + ": ${a" + std::to_string(i - 1) + "}\n";
  EXPECT_NE(resolving_error(lists).find("the references make the config larger"), std::string::npos);
  EXPECT_NE(resolving_error(texts).find("make it longer than 1 MiB"), std::string::npos);
  EXPECT_NE(resolving_error(chain).find("chain of more than"), std::string::npos);
  std::string nested, closing;
  for (int i = 0; i < 100'000; ++i) nested += "${", closing += "}";
  EXPECT_NE(resolving_error("a: " + nested + "b" + closing).find("nested more than 64 deep"), std::string::npos);
  std::string ladder = "a0: {x: 1}\n";
  for (int i = 1; i < 100; ++i)
    ladder = "a" + std::to_string(i) + ": {x: '${a" + std::to_string(i - 1) + "}'}\n" + ladder;
  EXPECT_NE(resolving_error(ladder), "no error");
}

TEST(References, ReferencedPaths) {
  const Node tree = read_yaml_text("a: {b: '${.c} ${x.y}', d: '${p.${q}}'}\ne: '\\${no}'\nf: ${g.0}", "x.yaml");
  EXPECT_EQ(referenced_paths(tree), (std::set<std::string>{"a.c", "x.y", "p", "q", "g.0"}));
}

}  // namespace
}  // namespace redline::config
