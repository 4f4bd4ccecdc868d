#include "task/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::task {
namespace {

TaskEntry entry(const std::string& name, const std::string& marker = "") {
  TaskEntry result;
  result.name = name;
  result.make_config = [] { return std::unique_ptr<TaskConfig>(); };
  if (!marker.empty())
    result.recognises = [marker](const config::Node& node) { return node.find_path(marker) != nullptr; };
  return result;
}

TEST(Registry, FindsAndListsKnownNames) {
  Registry registry;
  registry.add(entry("speech_ssl"));
  registry.add(entry("convnext"));
  EXPECT_EQ(registry.find("convnext").name, "convnext");
  try {
    registry.find("convnex");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("did you mean 'convnext'"));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("speech_ssl, convnext"));
  }
}

TEST(Registry, RefusesADuplicate) {
  Registry registry;
  registry.add(entry("a"));
  EXPECT_THROW(registry.add(entry("a")), InternalError);
}

TEST(Registry, RecognisesAFileByItsContent) {
  Registry registry;
  registry.add(entry("plain"));
  registry.add(entry("nest", "model.quantizer"));
  config::Node request = config::Node::map();
  EXPECT_EQ(registry.recognise(request), nullptr);
  request.set_path("model.quantizer", config::Node::scalar("x"));
  ASSERT_NE(registry.recognise(request), nullptr);
  EXPECT_EQ(registry.recognise(request)->name, "nest");
}

}  // namespace
}  // namespace redline::task
