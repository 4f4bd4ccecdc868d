#include "config/node.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace redline::config {
namespace {

TEST(NodeTest, ScalarsReadAsWhatIsAsked) {
  struct Case {
    const char* text;
    std::optional<bool> as_bool;
    std::optional<int64_t> as_int;
    std::optional<double> as_double;
  };
  for (const Case& c :
       {Case{"true", true, {}, {}}, Case{"Off", false, {}, {}}, Case{"8", {}, 8, 8.0}, Case{"-1", {}, -1, -1.0},
        Case{"1e5", {}, 100000, 1e5}, Case{"8.0", {}, 8, 8.0}, Case{"8.5", {}, {}, 8.5},
        Case{"1_000", {}, 1000, 1000.0}, Case{"1e-3", {}, {}, 1e-3}, Case{".inf", {}, {}, INFINITY},
        Case{"1e30", {}, {}, 1e30}, Case{"16-mixed", {}, {}, {}}, Case{"", {}, {}, {}}}) {
    const Node node = Node::scalar(c.text);
    EXPECT_EQ(node.as_bool(), c.as_bool) << c.text;
    EXPECT_EQ(node.as_int(), c.as_int) << c.text;
    EXPECT_EQ(node.as_double(), c.as_double) << c.text;
    const Node quoted = Node::scalar(c.text, true);
    EXPECT_FALSE(quoted.as_bool() || quoted.as_int() || quoted.as_double()) << c.text;
  }
  EXPECT_TRUE(std::isnan(*Node::scalar("nan").as_double()));
  EXPECT_FALSE(Node::list().as_int() || Node().as_bool() || Node::map().as_double());
}

TEST(NodeTest, MissingMarker) {
  EXPECT_TRUE(Node::scalar("???").is_missing_marker());
  EXPECT_FALSE(Node::scalar("???", true).is_missing_marker());
}

TEST(NodeTest, PathsReachIntoMapsAndLists) {
  Node root = Node::map();
  root.set_path("a.b.c", Node::scalar("1"));
  root.set_path("a.list", Node::list({Node::scalar("x"), Node::map({{"k", Node::scalar("y")}})}));
  EXPECT_EQ(root.find_path("a.b.c")->text(), "1");
  EXPECT_EQ(root.find_path("a.list.0")->text(), "x");
  EXPECT_EQ(root.find_path("a.list.1.k")->text(), "y");
  for (const char* absent : {"b", "a.x", "a.b.c.d", "a.list.2", "a.list.k", "a..b", "", "a.list.-1"}) {
    EXPECT_EQ(root.find_path(absent), nullptr) << absent;
  }
  root.set_path("a.list.1.k", Node::scalar("z"));
  EXPECT_EQ(root.find_path("a.list.1.k")->text(), "z");
  EXPECT_TRUE(root.remove_path("a.list.0"));
  EXPECT_EQ(root.find_path("a.list.0.k")->text(), "z");
  EXPECT_TRUE(root.remove_path("a.b"));
  EXPECT_FALSE(root.remove_path("a.b"));
  EXPECT_FALSE(root.remove_path("x.y.z"));
}

std::string error_of(Node& root, const std::string& path) {
  Node value = Node::scalar("1");
  value.origin = {OriginKind::Flag, path + "=1", 0, 0, ""};
  try {
    root.set_path(path, value);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(NodeTest, SettingThroughAValueIsAnError) {
  Node root = Node::map();
  root.set_path("a", Node::scalar("word"));
  root.set_path("l", Node::list({Node::scalar("x")}));
  EXPECT_EQ(error_of(root, "a.b"),
            "flag a.b=1: 'a.b' leads through the value 'word' (default), which has no keys; remove one of the two.");
  EXPECT_EQ(error_of(root, "l.3"),
            "flag l.3=1: '3' in 'l.3' is not an item of a list of 1; count from 0, or give the whole list.");
  EXPECT_EQ(error_of(root, "a..b"),
            "flag a..b=1: 'a..b' is not a key; write words joined by single dots, as in trainer.precision.");
  EXPECT_NE(error_of(root, ""), "no error");
  std::string deep = "k";
  for (int i = 0; i < 100; ++i) deep += ".k";
  EXPECT_NE(error_of(root, deep), "no error");
}

TEST(NodeTest, EqualityIgnoresOriginsAndOrderOfKeys) {
  Node a = Node::map({{"x", Node::scalar("1")}, {"y", Node::list({Node()})}});
  Node b = Node::map({{"y", Node::list({Node()})}, {"x", Node::scalar("1")}});
  b.origin.line = 7;
  EXPECT_EQ(a, b);
  b.set_path("x", Node::scalar("1", true));
  EXPECT_FALSE(a == b);
  EXPECT_FALSE(Node::list({Node::scalar("1"), Node::scalar("2")}) ==
               Node::list({Node::scalar("2"), Node::scalar("1")}));
}

TEST(NodeTest, OriginsSayWhere) {
  EXPECT_EQ((Origin{OriginKind::File, "a.yaml", 3, 5, ""}.text()), "a.yaml:3:5");
  EXPECT_EQ((Origin{OriginKind::Flag, "--x 1", 0, 0, ""}.text()), "flag --x 1");
  EXPECT_EQ((Origin{OriginKind::Preset, "quick, a.yaml", 3, 5, ""}.text()), "preset quick, a.yaml:3:5");
  EXPECT_EQ((Origin{OriginKind::Resolved, "", 0, 0, ""}.text()), "resolved");
  EXPECT_EQ((Origin{OriginKind::File, "a.yaml", 3, 5, "runner.max_iters: 100"}.text()),
            "a.yaml:3:5 (as runner.max_iters: 100)");
  EXPECT_EQ(Origin{}.text(), "default");
}

}  // namespace
}  // namespace redline::config
