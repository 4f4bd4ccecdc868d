#include "config/testing/new_option_example.h"

#include <gtest/gtest.h>

#include "config/describe.h"
#include "core/file_ops.h"
#include "core/strings.h"

namespace redline::config {
namespace {

TEST(NewOption, TheExampleWorks) {
  data::EchoConfig echo;
  Schema schema;
  schema.section("model.train_ds.echo", echo);
  RequestSource source;
  source.overrides = {"--use_echo", "model.train_ds.echo.max_age_seconds=3m"};
  Resolved resolved = bind(read_request(source, schema), schema);
  EXPECT_EQ(echo.echo_factor.value(), 2);
  EXPECT_EQ(echo.max_age_seconds, 180.0);
  EXPECT_EQ(resolved.find("model.train_ds.echo.echo_factor")->origin.text(), "flag --use_echo (as use_echo: true)");
  source.overrides = {"--echo", "auto"};
  resolved = bind(read_request(source, schema), schema);
  EXPECT_TRUE(echo.echo_factor.is_auto());
  MachineFacts machine;
  machine.disk_kind = "network";
  echo.resolve(machine);
  EXPECT_EQ(snapshot(schema, resolved).find("model.train_ds.echo.echo_factor")->origin.text(),
            "resolved from flag --echo auto");
  const auto space = search_space(snapshot(schema, resolved));
  ASSERT_EQ(space.size(), 1u);
  EXPECT_EQ(space[0].tried, (std::vector<std::string>{"1", "2", "4"}));
}

// Every C++ block of the page is a stretch of the example between [begin X] and [end X].
TEST(NewOption, ThePageShowsTheExample) {
  const std::string page = read_file(REDLINE_SOURCE_DIR "/docs/new_option.md");
  const std::string example = read_file(REDLINE_SOURCE_DIR "/src/config/testing/new_option_example.h");
  size_t blocks = 0;
  for (size_t at = page.find("```cpp\n"); at != std::string::npos; at = page.find("```cpp\n", at + 1), ++blocks) {
    const std::string block = page.substr(at + 7, page.find("```", at + 7) - at - 7);
    EXPECT_NE(example.find("]\n" + block + "// [end"), std::string::npos) << "this block differs from the example:\n"
                                                                          << block;
  }
  EXPECT_EQ(blocks, 2u);
}

}  // namespace
}  // namespace redline::config
