#include "measure/run_record.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "measure/detail/steps_file.h"
#include "measure/faults.h"
#include "measure/kept_writes.h"
#include "measure/machine_json.h"
#include "measure/run_lock.h"

namespace redline::measure {
namespace {

using testing::HasSubstr;

class RunDirectory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("redline_run_" + std::to_string(getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
    run_ = root_ / "run";
  }
  void TearDown() override {
    faults::clear();
    std::filesystem::remove_all(root_);
  }
  std::filesystem::path root_, run_;
};

StepRow simple_row(int64_t step) {
  StepRow row;
  row.step = step;
  row.wall_ns = row.phase_ns[0] = 1000;
  row.samples = 8;
  return row;
}

std::string error_of(const std::function<void()>& run, ExitCode code) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

// Runs `body` in a child (for other users, mounts and kills); true when it returned 0.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    int code = 99;
    try {
      code = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "child: %s\n", error.what());
    }
    _exit(code);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(RunDirectory, WritesAndReadsARun) {
  {
    RunWriter writer(run_, false);
    writer.write_config("trainer:\n  max_steps: 3\n");
    MachineFacts facts;
    facts.cpu_model = "a \"model\"";
    writer.write_machine(facts);
    for (int64_t step = 1; step <= 3; ++step) {
      writer.step(simple_row(step));
      writer.metric(step, "loss", 1.0 / static_cast<double>(step));
      writer.metric(step, "val_loss", 2.0);
    }
    std::thread([&] { writer.event("guard.nan", {{"step", int64_t{2}}}); }).join();
    EXPECT_EQ(writer.directory(), run_);
  }
  const RunRecord record = read_run(run_);
  EXPECT_EQ(record.version, kRunRecordVersion);
  EXPECT_TRUE(record.warnings.empty());
  EXPECT_EQ(record.config_yaml, "trainer:\n  max_steps: 3\n");
  EXPECT_EQ(machine_from_json(record.machine_json, "machine.json").cpu_model, "a \"model\"");
  ASSERT_EQ(record.steps.size(), 3U);
  EXPECT_EQ(record.steps[2].step, 3);
  ASSERT_EQ(record.metrics.size(), 6U);
  EXPECT_EQ(record.metrics[2].value, 0.5);
  ASSERT_EQ(record.events.size(), 2U);
  EXPECT_EQ(record.events[0].kind, "run.started");
  EXPECT_GT(std::get<double>(*record.events[0].find("phase_scope_ns")), 0.0) << "the timers' own cost is in the record";
  EXPECT_EQ(record.events[1].kind, "guard.nan");
}

TEST_F(RunDirectory, AnUndeclaredMetricIsOurMistake) {
  MetricTable table = standard_metrics();
  table.add({"mask_accuracy", MetricType::Mean, "share", "Right predictions of masked frames."});
  RunWriter writer(run_, false, table);
  EXPECT_NO_THROW(writer.metric(1, "mask_accuracy", 0.5));
  EXPECT_NO_THROW(writer.metric(1, "val_mask_accuracy", 0.5));
  EXPECT_THROW(writer.metric(1, "never_declared", 0.5), InternalError);
}

TEST_F(RunDirectory, RowsReachTheFileBySixtyFour) {
  RunWriter writer(run_, false);
  for (int64_t step = 1; step <= 63; ++step) writer.step(simple_row(step));
  // 63 rows take far less than the second after which they would be written anyway.
  const size_t early = read_run(run_).steps.size();
  EXPECT_TRUE(early == 0 || early < 63);
  writer.step(simple_row(64));
  EXPECT_EQ(read_run(run_).steps.size(), 64U);
  writer.step(simple_row(65));
  writer.flush();
  EXPECT_EQ(read_run(run_).steps.size(), 65U);
  EXPECT_NO_THROW(writer.sync());
}

TEST_F(RunDirectory, AnExistingRunIsNotOverwritten) {
  { RunWriter writer(run_, false); }
  const std::string before = read_file(run_ / "events.jsonl");
  EXPECT_THAT(error_of([&] { RunWriter again(run_, false); }, ExitCode::Usage), HasSubstr("--resume"));
  EXPECT_EQ(read_file(run_ / "events.jsonl"), before);
  std::ofstream(root_ / "file") << "x";
  EXPECT_THAT(error_of([&] { RunWriter on_file(root_ / "file", false); }, ExitCode::Usage), HasSubstr("is a file"));
}

TEST_F(RunDirectory, AFolderWithoutARecordIsUsable) {
  std::filesystem::create_directories(run_);
  std::ofstream(run_ / "notes.txt") << "keep me";
  std::ofstream(run_ / "events.jsonl") << "left by a run that was killed at its start";
  { RunWriter writer(run_, false); }
  EXPECT_EQ(read_run(run_).events.size(), 1U);
  EXPECT_TRUE(std::filesystem::exists(run_ / "notes.txt"));
}

TEST_F(RunDirectory, ResumeContinuesAndLaterRowsWin) {
  {
    RunWriter writer(run_, true);  // nothing to resume: a new run
    for (int64_t step = 1; step <= 5; ++step) {
      StepRow row = simple_row(step);
      row.loss = 1;
      writer.step(row);
    }
  }
  {
    RunWriter writer(run_, true);
    for (int64_t step = 4; step <= 6; ++step) {
      StepRow row = simple_row(step);
      row.loss = 2;
      row.flags = step == 4 ? uint32_t{kStepAfterResume} : 0U;
      writer.step(row);
    }
  }
  const RunRecord record = read_run(run_);
  ASSERT_EQ(record.steps.size(), 6U);
  EXPECT_EQ(record.steps[2].loss, 1);
  EXPECT_EQ(record.steps[3].loss, 2);
  ASSERT_EQ(record.events.size(), 2U);
  EXPECT_EQ(record.events[1].kind, "run.resumed");
}

// A kill may tear every file at any byte; a resumed writer must go on at a whole row and a whole line.
TEST_F(RunDirectory, ResumesAfterATearAtAnyByte) {
  {
    RunWriter writer(run_, false);
    for (int64_t step = 1; step <= 2; ++step) {
      writer.step(simple_row(step));
      writer.metric(step, "loss", 1);
    }
  }
  const std::string steps = read_file(run_ / "steps.bin"), events = read_file(run_ / "events.jsonl"),
                    metrics = read_file(run_ / "metrics.jsonl");
  const auto cut = [](const std::filesystem::path& path, const std::string& bytes, size_t lost) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        << bytes.substr(0, bytes.size() - std::min(lost, bytes.size()));
  };
  const LogLevel level = log_level();
  set_log_level(LogLevel::Error);  // a warning per tear is right, and 76 of them are noise here
  for (size_t lost = 0; lost <= steps.size(); lost += 7) {
    cut(run_ / "steps.bin", steps, lost);
    cut(run_ / "events.jsonl", events, lost);
    cut(run_ / "metrics.jsonl", metrics, lost);
    {
      RunWriter writer(run_, true);
      writer.step(simple_row(9));
      writer.metric(9, "loss", 9);
    }
    const RunRecord record = read_run(run_);
    ASSERT_TRUE(record.warnings.empty()) << lost << ": " << record.warnings.front();
    ASSERT_EQ(record.steps.back().step, 9) << lost;
    ASSERT_EQ(record.metrics.back().step, 9) << lost;
    ASSERT_EQ(record.events.back().kind, "run.resumed") << lost;
  }
  set_log_level(level);
}

TEST_F(RunDirectory, TheLockNamesItsHolder) {
  RunWriter writer(run_, false);
  const std::string message = error_of([&] { RunWriter second(run_, true); }, ExitCode::Usage);
  EXPECT_THAT(message, HasSubstr("process " + std::to_string(getpid()) + " on "));
  EXPECT_NO_THROW(read_run(run_)) << "readers need no lock";
}

TEST_F(RunDirectory, TheLockEndsWithItsHolder) {
  std::filesystem::create_directories(run_);
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const RunLock lock(run_);
    (void)!write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_THAT(error_of([&] { RunLock lock(run_); }, ExitCode::Usage), HasSubstr("process " + std::to_string(child)));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_NO_THROW(RunLock lock(run_)) << "a killed holder leaves no stale lock";
  close(ready[0]);
  close(ready[1]);
}

TEST_F(RunDirectory, ALockKnowsWhetherItsPathStillLeadsToIt) {
  std::filesystem::create_directories(run_);
  const RunLock lock(run_);
  EXPECT_TRUE(lock.in_place());
  std::filesystem::rename(run_, root_ / "moved");
  EXPECT_FALSE(lock.in_place());
  std::filesystem::create_directories(run_);
  const RunLock other(run_);  // another run at the same path
  EXPECT_TRUE(other.in_place());
  EXPECT_FALSE(lock.in_place());
  std::filesystem::remove(run_ / "lock");
  EXPECT_FALSE(other.in_place());
}

// It can neither be opened nor made, which was tried for ever.
TEST_F(RunDirectory, ALockThatIsALinkIsADiskError) {
  std::filesystem::create_directories(run_);
  std::filesystem::create_symlink(root_ / "nowhere", run_ / "lock");
  EXPECT_THAT(error_of([&] { RunLock lock(run_); }, ExitCode::Disk), HasSubstr("lock"));
}

TEST_F(RunDirectory, AQuietLockLeavesNoTrace) {
  std::filesystem::create_directories(run_);
  std::string holder;
  {
    const RunLock lock = RunLock::quietly(run_);
    EXPECT_FALSE(RunLock::if_free(run_, holder).has_value());
    EXPECT_THAT(error_of([&] { RunLock again(run_); }, ExitCode::Usage), HasSubstr("in use by another process"));
  }
  EXPECT_FALSE(std::filesystem::exists(run_ / "lock"));
  { RunLock announced(run_); }
  const std::string text = read_file(run_ / "lock");
  EXPECT_THAT(text, HasSubstr("process " + std::to_string(::getpid())));
  { const RunLock lock = RunLock::quietly(run_); }
  EXPECT_EQ(read_file(run_ / "lock"), text);
  EXPECT_TRUE(RunLock::if_free(run_, holder).has_value());
}

TEST_F(RunDirectory, AReadOnlyFolderIsADiskError) {
  const auto folder = root_ / "read_only";
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(root_, std::filesystem::perms(0755));
  std::filesystem::permissions(folder, std::filesystem::perms(0555));
  const int code = in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;  // root may write everywhere
    return error_of([&] { RunWriter writer(folder / "run", false); }, ExitCode::Disk).find("may write") !=
                   std::string::npos
               ? 0
               : 2;
  });
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  const int existing = in_child([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return 1;
    return error_of([&] { RunWriter writer(folder, false); }, ExitCode::Disk).empty() ? 2 : 0;
  });
  EXPECT_EQ(existing, 0);
  std::filesystem::permissions(folder, std::filesystem::perms(0755));
}

// A disk that is full at the start: the error has the right kind, and the folder can be used later.
TEST_F(RunDirectory, AFullDiskAtTheStartIsADiskErrorAndLeavesTheRecordReadable) {
  for (int64_t n = 1; n <= 2; ++n) {
    const auto folder = root_ / ("full" + std::to_string(n));
    faults::fail_once("run_record.write", n);
    const std::string message = error_of(
        [&] {
          RunWriter writer(folder, false);  // writes 1 and 2: the headers
        },
        ExitCode::Disk);
    EXPECT_THAT(message, HasSubstr("No space left")) << n;
    faults::clear();
    RunWriter again(folder, true);
    again.step(simple_row(1));
    again.flush();
    const RunRecord record = read_run(folder);
    EXPECT_TRUE(record.warnings.empty()) << n;
    EXPECT_EQ(record.steps.size(), 1U) << n;
  }
}

// Later a write that fails is kept, tried again at the next flush, and nothing is missing or out of order.
TEST_F(RunDirectory, AWriteThatFailsLaterIsTriedAgainAndNothingIsMissing) {
  for (int64_t n = 3; n <= 6; ++n) {  // run.started, the event, the metric, the rows
    const auto folder = root_ / ("later" + std::to_string(n));
    faults::fail_once("run_record.write", n);
    RunWriter writer(folder, false);
    writer.event("a", {});
    writer.metric(1, "loss", 1);
    for (int64_t step = 1; step <= 64; ++step) writer.step(simple_row(step));
    writer.event("b", {});
    writer.metric(2, "loss", 2);
    writer.flush();
    faults::clear();
    const RunRecord record = read_run(folder);
    EXPECT_TRUE(record.warnings.empty()) << n;
    EXPECT_EQ(record.steps.size(), 64U) << n;
    ASSERT_EQ(record.events.size(), 3U) << n;
    EXPECT_EQ(record.events[0].kind + record.events[1].kind + record.events[2].kind, "run.startedab") << n;
    ASSERT_EQ(record.metrics.size(), 2U) << n;
    EXPECT_EQ(record.metrics[1].value, 2.0) << n;
    EXPECT_FALSE(retry_kept_writes().any()) << n;
  }
}

// The same on a real full file system where we may mount one: rows wait until there is space, none is torn or lost.
TEST_F(RunDirectory, ARealFullDisk) {
  const auto folder = root_ / "small_disk";
  std::filesystem::create_directory(folder);
  const int code = in_child([&] {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=64k") != 0) {
      return 42;  // not allowed here; the injected errors above cover the logic
    }
    RunWriter writer(folder / "run", false);
    for (int64_t step = 1; step <= 1000; ++step) writer.step(simple_row(step));
    writer.flush();
    const RunRecord full = read_run(folder / "run");
    const int64_t waiting = retry_kept_writes().waiting;
    if (full.steps.empty() || full.steps.size() >= 1000 || !full.warnings.empty() || waiting == 0) return 1;
    if (mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT, "size=1m") != 0) return 2;
    writer.step(simple_row(1001));
    writer.flush();
    const RunRecord record = read_run(folder / "run");
    if (record.steps.size() != 1001 || !record.warnings.empty() || retry_kept_writes().any()) return 3;
    for (size_t i = 0; i < record.steps.size(); ++i)
      if (record.steps[i].step != static_cast<int64_t>(i) + 1) return 4;
    return 0;
  });
  EXPECT_TRUE(code == 0 || code == 42) << code;
}

TEST_F(RunDirectory, ReadingWhatIsNoRun) {
  EXPECT_THAT(error_of([&] { read_run(root_ / "none"); }, ExitCode::Data), HasSubstr("does not exist"));
  EXPECT_THAT(error_of([&] { read_run(root_); }, ExitCode::Data), HasSubstr("no run record"));
  std::filesystem::create_directory(run_);
  std::ofstream(run_ / "steps.bin") << std::string(500, 'j');
  EXPECT_THAT(error_of([&] { read_run(run_); }, ExitCode::Data), HasSubstr("not a redline step file"));
}

TEST_F(RunDirectory, DatedDirectoriesDoNotCollide) {
  const auto first = dated_run_directory(root_, "nest");
  EXPECT_EQ(first.parent_path(), root_ / "nest");
  std::filesystem::create_directories(first);
  const auto second = dated_run_directory(root_, "nest");
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::filesystem::exists(second));
  EXPECT_FALSE(has_run_record(first));
}

TEST(MachineJson, ReadsBackAndRefusesOthers) {
  MachineFacts facts;
  facts.allowed_cpus = 7;
  facts.amx_int8 = true;
  facts.memory_bytes = uint64_t{1} << 40;
  facts.gemm_bf16_gflops = 57.25;
  facts.disk_kind = "ssd";
  facts.gpus.push_back({"X \"1\"", 24});
  const MachineFacts back = machine_from_json(machine_to_json(facts), "m");
  EXPECT_EQ(back.allowed_cpus, 7);
  EXPECT_TRUE(back.amx_int8);
  EXPECT_EQ(back.memory_bytes, uint64_t{1} << 40);
  EXPECT_EQ(back.gemm_bf16_gflops, 57.25);
  EXPECT_EQ(back.disk_kind, "ssd");
  ASSERT_EQ(back.gpus.size(), 1U);
  EXPECT_EQ(back.gpus[0].name, "X \"1\"");
  EXPECT_EQ(machine_to_json(back), machine_to_json(facts));
  EXPECT_THROW(machine_from_json("{}", "m"), DataError);
  EXPECT_THROW(machine_from_json("not json", "m"), DataError);
  EXPECT_THROW(machine_from_json("{\"schema_version\":2}", "m"), DataError);
  EXPECT_THROW(machine_from_json("{\"schema_version\":1,\"avx2\":\"yes\"}", "m"), DataError);
}

}  // namespace
}  // namespace redline::measure
