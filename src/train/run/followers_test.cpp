#include "train/run/followers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file_ops.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

TEST(CommandWords, AsTypedWithoutAShell) {
  EXPECT_EQ(command_words("a  b\tc", "on_end"), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(command_words(R"(notify "two words" 'it''s' x\ y "")", "on_end"),
            (std::vector<std::string>{"notify", "two words", "its", "x y", ""}));
  EXPECT_EQ(command_words("echo $HOME; rm *", "on_end"), (std::vector<std::string>{"echo", "$HOME;", "rm", "*"}));
  EXPECT_THROW(command_words("a 'b", "on_end"), ConfigError);
  EXPECT_THROW(command_words("  ", "on_end"), ConfigError);
}

class FollowersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_ = fs::path(::testing::TempDir()) / ("followers_" + std::to_string(::getpid()));
    fs::remove_all(run_);
    fs::create_directories(run_);
  }
  void TearDown() override { fs::remove_all(run_); }
  fs::path run_;
};

TEST_F(FollowersTest, HooksGetWhatHappenedInTheirEnvironment) {
  ExpManagerConfig config;
  config.on_validation = "sh -c 'echo $REDLINE_HOOK $REDLINE_STEP $REDLINE_METRICS > $REDLINE_RUN_DIR/said'";
  config.on_end = "sh -c 'echo $REDLINE_WHY > $REDLINE_RUN_DIR/end'";
  Followers followers(config, run_, "x");
  followers.validated(30, {{"val_loss", 1.5}});
  followers.saved(30);  // no hook of that kind
  followers.ended(40, "max_steps");
  EXPECT_EQ(read_file(run_ / "said"), "validation 30 {\"val_loss\":1.5}\n");
  EXPECT_EQ(read_file(run_ / "end"), "max_steps\n");
}

TEST_F(FollowersTest, AFailingOrMissingCommandIsHarmless) {
  ExpManagerConfig config;
  config.on_validation = "sh -c 'echo no such thing; exit 7'";
  config.on_checkpoint = "/nowhere/at/all";
  Followers followers(config, run_, "x");
  ::testing::internal::CaptureStderr();
  followers.validated(1, {});
  followers.saved(1);
  followers.ended(2, "max_steps");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, ::testing::HasSubstr("exit code 7"));
  EXPECT_THAT(said, ::testing::HasSubstr("no such thing"));
  EXPECT_THAT(said, ::testing::HasSubstr("on_checkpoint cannot be started"));
}

}  // namespace
}  // namespace redline::train
