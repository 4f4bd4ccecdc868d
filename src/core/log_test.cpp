#include "core/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "core/strings.h"

namespace redline {
namespace {

class Log : public ::testing::Test {
 protected:
  void TearDown() override {
    set_log_level(LogLevel::Info);
    set_log_format(LogFormat::Text);
    set_log_color(false);
    set_log_hooks(nullptr, nullptr);
  }
  template <class Work>
  static std::string captured(Work work) {
    ::testing::internal::CaptureStderr();
    work();
    return ::testing::internal::GetCapturedStderr();
  }
};

TEST_F(Log, TextLinesCarryTheLevelAndAreDefused) {
  EXPECT_EQ(captured([] {
              log_debug("hidden");
              log_info("reading x.yaml");
              log_warning("slow\x1b[2J");
              log_error("bad\nfile");
            }),
            "reading x.yaml\nwarning: slow\\x1b[2J\nerror: bad\\x0afile\n");
}

TEST_F(Log, LevelHidesWhatIsBelow) {
  set_log_level(LogLevel::Warning);
  EXPECT_EQ(log_level(), LogLevel::Warning);
  EXPECT_EQ(captured([] {
              log_info("a");
              log_warning("b");
            }),
            "warning: b\n");
  set_log_level(LogLevel::Debug);
  EXPECT_EQ(captured([] { log_debug("c"); }), "debug: c\n");
}

TEST_F(Log, JsonLinesHaveTimeLevelMessage) {
  set_log_format(LogFormat::Json);
  const std::string line = captured([] { log_warning("a \"b\"\x1b"); });
  EXPECT_TRUE(starts_with(line, "{\"time\":\"20")) << line;
  EXPECT_TRUE(ends_with(line, "\"level\":\"warning\",\"message\":\"a \\\"b\\\"\\u001b\"}\n")) << line;
}

TEST_F(Log, ColourOnlyWhenAsked) {
  set_log_color(true);
  EXPECT_EQ(captured([] { log_warning("x"); }), "\x1b[33mwarning:\x1b[0m x\n");
}

TEST_F(Log, OncePerText) {
  EXPECT_EQ(captured([] {
              log_warning_once("only once, test");
              log_warning_once("only once, test");
              log_warning_once("another, test");
            }),
            "warning: only once, test\nwarning: another, test\n");
}

int hooks_called = 0;
TEST_F(Log, HooksSurroundEachLine) {
  set_log_hooks([] { ++hooks_called; }, [] { hooks_called += 10; });
  captured([] { log_info("x"); });
  EXPECT_EQ(hooks_called, 11);
}

TEST_F(Log, LinesOfThreadsDoNotMix) {
  const std::string text = captured([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < 50; ++i) log_info(std::string(100, static_cast<char>('a' + t)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::vector<std::string> lines = split(text, '\n');
  ASSERT_EQ(lines.size(), 201u);
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(lines[i], std::string(100, lines[i][0]));
}

}  // namespace
}  // namespace redline
