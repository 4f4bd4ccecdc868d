// Every directory that a crash could leave, at every operation of four saves with retention, is loaded: always the last
// acknowledged generation or the one being written, bit for bit. The same harness must flag protocols that are known to
// be unsafe.
#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/log.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/snapshot.h"
#include "train/testing/simulated_disk.h"
#include "train/testing/test_state.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;
using test::equal_states;
using test::keep_two;
using test::ScratchDirectory;
using test::state_at;

constexpr int64_t kFloats = 530'000;  // 2.1 MB: the model takes three writes, so one can be lost in the middle

struct Recorded {
  std::vector<DiskOp> log;
  std::vector<std::pair<size_t, int64_t>> acknowledged;  // operations issued when save(step) had returned
};

struct Verdict {
  size_t states = 0, distinct = 0;
  std::vector<std::string> bad;
};

// What a run would resume from: the step of the generation, 0 for a fresh start, or the reason why neither is possible.
std::string resume_from(const fs::path& directory) {
  try {
    CheckpointStore store(directory, keep_two());
    const auto loaded = store.load_newest();
    if (!loaded) return "0";
    if (!equal_states(loaded->state, state_at(loaded->info.step, kFloats))) return "mixed content";
    return std::to_string(loaded->info.step);
  } catch (const Error& error) {
    return error.what();
  }
}

Verdict judge_all_states(const Recorded& recorded, const fs::path& scratch) {
  Verdict verdict;
  std::map<std::string, std::string> seen;  // signature -> outcome
  TreeBuilder builder(recorded.log, scratch.string() + "-pool");
  for (const CrashState& state : enumerate_crash_states(recorded.log)) {
    ++verdict.states;
    const CrashedTree tree = tree_after(recorded.log, state);
    auto [found, fresh] = seen.emplace(tree.signature(), "");
    if (fresh) {
      builder.build(tree, scratch);
      found->second = resume_from(scratch / "checkpoints");
    }
    std::string old_step = "0", new_step = "0";
    for (size_t i = 0; i < recorded.acknowledged.size(); ++i) {
      if (recorded.acknowledged[i].first <= state.prefix) old_step = std::to_string(recorded.acknowledged[i].second);
    }
    for (size_t i = recorded.acknowledged.size(); i-- > 0;) {
      if (recorded.acknowledged[i].first > state.prefix) new_step = std::to_string(recorded.acknowledged[i].second);
    }
    if (found->second != old_step && found->second != new_step) {
      verdict.bad.push_back(state.name + ": expected step " + old_step + " or " + new_step + ", got: " + found->second);
    }
  }
  verdict.distinct = seen.size();
  return verdict;
}

void print(const char* name, const Verdict& verdict) {
  std::printf("%s: %zu states (%zu distinct), %zu bad\n", name, verdict.states, verdict.distinct, verdict.bad.size());
  for (size_t i = 0; i < std::min<size_t>(3, verdict.bad.size()); ++i)
    std::printf("  %.160s\n", verdict.bad[i].c_str());
}

class CrashStates : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = log_level();
    set_log_level(LogLevel::Error);  // thousands of damaged checkpoints are expected here
  }
  void TearDown() override { set_log_level(before_); }
  LogLevel before_;
};

TEST_F(CrashStates, OurProtocolAlwaysHasTheOldOrTheNewGeneration) {
  ScratchDirectory scratch;
  RecordingFileOps ops(scratch.path() / "live");
  fs::create_directories(scratch / "live");
  Recorded recorded;
  {
    CheckpointStore store(scratch.path() / "live" / "checkpoints", keep_two(), {}, ops);
    for (int64_t step : {100, 200, 300, 400}) {
      const CheckpointState state = state_at(step, kFloats);
      step == 300 ? store.save_sync(state, step) : store.save(state, step);  // both ways of writing
      store.wait();
      recorded.acknowledged.emplace_back(ops.log().size(), step);
    }
  }
  recorded.log = ops.log();
  const Verdict verdict = judge_all_states(recorded, scratch / "crashed");
  print("checkpoint protocol", verdict);
  EXPECT_GT(verdict.states, 1000u);
  EXPECT_TRUE(verdict.bad.empty()) << verdict.bad.front();
}

// The controls write the same files in orders that other checkpoint writers use or that omit one step of ours.
struct Order {
  bool sync_files = true, sync_parent = true, delete_first = false;
};

void write_in_order(FileOps& ops, const fs::path& directory, int64_t step, const Order& order) {
  const CheckpointState state = state_at(step, kFloats);
  const fs::path temporary = directory / (".tmp-" + generation_name(step));
  ops.make_directory(temporary);
  Manifest manifest{step, "", std::nullopt, "", {}};
  for (const GenerationFile& source : live_files(state)) {
    const auto file = ops.create(temporary / source.name);
    DigestFile digested(*file, source.name);
    source.write(digested);
    if (order.sync_files) digested.sync();
    if (!order.sync_files) digested.flush();
    digested.close();
    manifest.files.push_back(digested.digest());
  }
  const auto last = ops.create(temporary / kManifestName);
  const std::string text = manifest_text(manifest);
  last->write(std::as_bytes(std::span(text)));
  if (order.sync_files) last->sync();
  last->close();
  ops.sync_directory(temporary);
  if (order.delete_first && step > 100) {
    const fs::path before = directory / generation_name(step - 100);
    for (const auto& entry : fs::directory_iterator(before)) ops.remove(entry.path());
    ops.remove(before);
  }
  ops.rename(temporary, directory / generation_name(step));
  if (order.sync_parent) ops.sync_directory(directory);
}

Verdict judge_order(const Order& order, const ScratchDirectory& scratch) {
  fs::remove_all(scratch / "live");
  fs::create_directories(scratch / "live");
  RecordingFileOps ops(scratch.path() / "live");
  ops.make_directory(scratch.path() / "live" / "checkpoints");
  ops.sync_directory(scratch / "live");
  Recorded recorded;
  for (int64_t step : {100, 200}) {
    write_in_order(ops, scratch.path() / "live" / "checkpoints", step, order);
    recorded.acknowledged.emplace_back(ops.log().size(), step);
  }
  recorded.log = ops.log();
  return judge_all_states(recorded, scratch / "crashed");
}

TEST_F(CrashStates, ControlsAreFlagged) {
  ScratchDirectory scratch;
  const Verdict safe = judge_order({}, scratch);
  const Verdict delete_first = judge_order({.delete_first = true}, scratch);
  const Verdict no_file_sync = judge_order({.sync_files = false}, scratch);
  const Verdict no_parent_sync = judge_order({.sync_parent = false}, scratch);
  print("control, safe order", safe);
  print("control, delete then rename", delete_first);
  print("control, files not synced", no_file_sync);
  print("control, parent not synced", no_parent_sync);
  EXPECT_TRUE(safe.bad.empty());
  EXPECT_FALSE(delete_first.bad.empty());
  EXPECT_FALSE(no_file_sync.bad.empty());
  EXPECT_FALSE(no_parent_sync.bad.empty());
}

}  // namespace
}  // namespace redline::train
