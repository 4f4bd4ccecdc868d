#include "train/child/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "core/file_ops.h"
#include "train/checkpoint/sample_log.h"
#include "train/testing/test_state.h"

namespace redline::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ChildProcess, CodesSignalsOutputAndEnvironment) {
  test::ScratchDirectory scratch;
  ChildOptions options;
  options.arguments = {"sh", "-c", "echo \"$WORD\"; echo err >&2; exit 3"};
  options.environment = {{"WORD", "hello"}};
  options.output = scratch / "log";
  const auto ended = ChildProcess(options).wait();
  EXPECT_EQ(ended->exit_code, 3);
  EXPECT_EQ(read_file(scratch / "log"), "hello\nerr\n");
  options.arguments = {"sh", "-c", "kill -9 $$"};
  EXPECT_EQ(ChildProcess(options).wait()->signal, SIGKILL);
}

TEST(ChildProcess, WaitingHasALimitAndDestructionKills) {
  ChildOptions options;
  options.arguments = {"sleep", "1000"};
  pid_t pid = 0;
  {
    ChildProcess child(options);
    pid = child.pid();
    EXPECT_FALSE(child.wait(0.01).has_value());
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);  // ended and reaped
}

TEST(ChildProcess, FailureSpeaks) {
  test::ScratchDirectory scratch;
  ChildOptions options;
  options.arguments = {"sh", "-c", "echo the reason; exit 5"};
  options.output = scratch / "log";
  try {
    run_child(options, "The helper");
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("The helper ended with code 5. Its last words: the reason"));
  }
  options.arguments = {"/no/such/program"};
  EXPECT_THROW(run_child(options, "x"), DeviceError);
}

// While SIGCHLD is ignored, as a parent may leave it to us, the kernel keeps no exit codes.
TEST(ChildProcess, FailureIsSeenWhileSigchldIsIgnored) {
  const auto before = ::signal(SIGCHLD, SIG_IGN);
  ChildOptions options;
  options.arguments = {"sh", "-c", "exit 3"};
  EXPECT_EQ(ChildProcess(options).wait()->exit_code, 3);
  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(ChildProcess(options).wait(20)->exit_code, 3);
  ::signal(SIGCHLD, SIG_IGN);
  EXPECT_THROW(run_child(options, "x"), DeviceError);
  ::signal(SIGCHLD, before);
}

TEST(ChildProcess, AnUnknownEndIsNoSuccess) {
  ChildOptions options;
  options.arguments = {"true"};
  EXPECT_EQ(ChildProcess(options).wait()->exit_code, 0);  // control
  for (const double seconds : {-1.0, 5.0}) {
    ChildProcess child(options);
    ASSERT_EQ(::waitpid(child.pid(), nullptr, 0), child.pid());
    EXPECT_EQ(child.wait(seconds)->exit_code, -1);
  }
}

TEST(ChildProcess, ASealedChildHasNothingOfOurs) {
  test::ScratchDirectory scratch;
  ::setenv("REDLINE_TEST_SECRET", "word", 1);
  ChildOptions options;
  options.arguments = {"sh", "-c",
                       "echo \"[$REDLINE_TEST_SECRET]\"; echo \"[$WORD]\"; ulimit -d; cat; exec sleep 1000"};
  options.environment = {{"WORD", "hello"}};
  options.output = scratch / "log";
  options.seal = ChildSeal{int64_t{1} << 30, int64_t{1} << 20, false};
  {
    ChildProcess child(options);
    EXPECT_EQ(::getsid(child.pid()), child.pid());
    EXPECT_FALSE(child.wait(0.3).has_value());
  }
  EXPECT_EQ(read_file(scratch / "log"), "[]\n[hello]\n1048576\n");
  options.arguments = {"sh", "-c", "head -c 2000000 /dev/zero >\"$WORD\""};
  options.environment = {{"WORD", (scratch / "large").string()}};
  EXPECT_NE(ChildProcess(options).wait()->exit_code, 0);
  EXPECT_LE(std::filesystem::file_size(scratch / "large"), 1U << 20);
  ::unsetenv("REDLINE_TEST_SECRET");
}

TEST(ChildProcess, ATimeLimitSpeaks) {
  ChildOptions options;
  options.arguments = {"sleep", "1000"};
  options.seal = ChildSeal{};
  try {
    run_child(options, "The helper", 0.05);
    FAIL();
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("The helper did not end within"));
  }
}

TEST(SampleLog, SurvivesTornLinesAndLaterRowsWin) {
  test::ScratchDirectory scratch;
  EXPECT_TRUE(read_sample_log(scratch.path()).empty());
  {
    SampleLog log(scratch.path());
    log.step(1, 0, std::vector<int64_t>{5, 6});
    log.step(2, 0, std::vector<int64_t>{7});
    log.flush();
    log.step(3, 0, std::vector<int64_t>{8, 9});
  }
  std::filesystem::resize_file(scratch / "samples.jsonl", std::filesystem::file_size(scratch / "samples.jsonl") - 3);
  {
    SampleLog log(scratch.path());
    log.step(2, 1, std::vector<int64_t>{70});
    log.step(3, 1, {});
  }
  const auto rows = read_sample_log(scratch.path());
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_THAT(rows.at(1).sample_ids, ElementsAre(5, 6));
  EXPECT_THAT(rows.at(2).sample_ids, ElementsAre(70));
  EXPECT_EQ(rows.at(2).epoch, 1);
  EXPECT_TRUE(rows.at(3).sample_ids.empty());
}

}  // namespace
}  // namespace redline::train
