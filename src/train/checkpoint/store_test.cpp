// The store as the loop uses it: save, find again, keep, recover; asynchronous writing, and what happens when the disk
// fails.
#include "train/checkpoint/store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

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
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct SeenEvents {
  std::mutex mutex;
  std::vector<std::string> kinds;
  CheckpointStore::EventSink sink() {
    return [this](const std::string& kind, const measure::FieldList&) {
      const std::lock_guard lock(mutex);
      kinds.push_back(kind);
    };
  }
};

std::vector<int64_t> steps_of(const CheckpointStore& store) {
  std::vector<int64_t> steps;
  for (const GenerationInfo& info : store.list()) steps.push_back(info.step);
  return steps;
}

std::vector<std::string> names_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(CheckpointStore, ValuesOfAnotherMetricDoNotCompare) {
  ScratchDirectory scratch;
  CheckpointConfig config = keep_two();
  config.async = false;
  { CheckpointStore(scratch / "c", config).save(state_at(1), 1, 0.5); }
  config.monitor.set("val_negative_elbo");
  CheckpointStore store(scratch / "c", config);
  EXPECT_FALSE(store.best().has_value());
  store.save(state_at(2), 2, 700.0);
  ASSERT_TRUE(store.best().has_value());
  EXPECT_EQ(store.best()->step, 2);
}

TEST(CheckpointStore, WhatIsSavedComesBack) {
  ScratchDirectory scratch;
  for (bool async : {false, true}) {
    CheckpointConfig config = keep_two();
    config.async = async;
    const fs::path directory = scratch / (async ? "async" : "sync");
    SeenEvents events;
    CheckpointStore store(directory, config, events.sink());
    EXPECT_FALSE(store.load_newest().has_value());
    CheckpointState state = state_at(12000);
    const SaveReport report = store.save(state, 12000, 0.25);
    state.model[0].second.zero_();  // training goes on: the snapshot must not see it
    store.wait();
    EXPECT_TRUE(report.written);
    EXPECT_GT(report.bytes, 4000u);
    EXPECT_GT(store.last_stall_seconds(), 0.0);
    EXPECT_GT(store.last_write_seconds(), 0.0);
    EXPECT_THAT(events.kinds, ElementsAre("checkpoint.saved"));
    EXPECT_THAT(names_in(directory), ElementsAre("step-00012000"));
    EXPECT_THAT(names_in(directory / "step-00012000"),
                ElementsAre("MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json"));

    CheckpointStore other(directory, config);
    const auto loaded = other.load_newest();
    ASSERT_TRUE(loaded.has_value());
    EXPECT_EQ(loaded->info.step, 12000);
    EXPECT_EQ(loaded->info.metric, 0.25);
    EXPECT_TRUE(equal_states(loaded->state, state_at(12000)));
    EXPECT_TRUE(equal_states(CheckpointStore::load(directory / "step-00012000").state, state_at(12000)));
    EXPECT_TRUE(equal_states(CheckpointStore::load(directory).state, state_at(12000)));
    EXPECT_EQ(CheckpointStore::load(directory / "step-00012000" / "model.safetensors").state.model.size(), 2u);
    EXPECT_FALSE(store.save(state_at(12000), 12000).written);  // already there
    EXPECT_FALSE(other.save(state_at(12000), 12000).written);
  }
}

TEST(CheckpointStore, SnapshotsAreReusedWhenTheStateChangesSize) {
  ScratchDirectory scratch;
  CheckpointStore store(scratch / "c", keep_two());
  int64_t step = 0;
  for (int64_t floats : {100'000, 10, 400'000, 400'000}) {
    ++step;
    store.save(state_at(step, floats), step);
    store.wait();
    EXPECT_TRUE(equal_states(store.load_newest()->state, state_at(step, floats)));
  }
}

// Digests taken with the snapshot, by the writer, and of live tensors are those of the same bytes.
TEST(CheckpointStore, DigestsDoNotDependOnWhoTakesThem) {
  ScratchDirectory scratch;
  const CheckpointState state = state_at(3, 700'000);
  Snapshot snapshot;
  std::vector<Manifest> manifests;
  for (const char* who : {"snapshot", "live", "writer"}) {
    snapshot.take(state, std::string(who) == "snapshot");
    const std::vector<GenerationFile> files = std::string(who) == "live" ? live_files(state) : snapshot.files();
    EXPECT_EQ(files[0].digest.has_value(), std::string(who) == "snapshot");
    write_generation(scratch.path(), {3, "", std::nullopt}, files, posix_file_ops());
    const VerifyReport report = verify_generation(scratch / generation_name(3), VerifyDepth::Sha256);
    EXPECT_TRUE(report.damage.empty());
    manifests.push_back(report.manifest.value());
    remove_generation(scratch / generation_name(3), posix_file_ops());
  }
  for (const Manifest& manifest : manifests) {
    ASSERT_EQ(manifest.files.size(), 3u);
    EXPECT_EQ(manifest.files[0].crc32c.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(manifest.files[i].name, manifests[0].files[i].name);
      EXPECT_EQ(manifest.files[i].bytes, manifests[0].files[i].bytes);
      EXPECT_EQ(manifest.files[i].sha256, manifests[0].files[i].sha256);
      EXPECT_EQ(manifest.files[i].crc32c, manifests[0].files[i].crc32c);
    }
  }
}

// Somebody moved a generation to another disk and left a link: letting it go takes the link, not what it leads to.
TEST(CheckpointStore, WhatALinkLeadsToIsNeverRemoved) {
  ScratchDirectory scratch;
  CheckpointStore store(scratch / "c", keep_two());
  store.save_sync(state_at(1, 10), 1);
  const std::filesystem::path generation = scratch / "c" / generation_name(1), moved = scratch / "elsewhere";
  std::filesystem::rename(generation, moved);
  std::filesystem::create_directory_symlink(moved, generation);
  std::filesystem::create_directory_symlink(moved, scratch / "c" / ".tmp-step-00000009-1");
  for (int64_t step : {2, 3, 4}) store.save_sync(state_at(step, 10), step);
  EXPECT_FALSE(std::filesystem::is_symlink(generation)) << "two are kept";
  EXPECT_TRUE(verify_generation(moved, VerifyDepth::Sha256).damage.empty());
  CheckpointStore next(scratch / "c", keep_two());
  next.save_sync(state_at(5, 10), 5);  // removes what an interrupted save left
  EXPECT_FALSE(std::filesystem::is_symlink(scratch / "c" / ".tmp-step-00000009-1"));
  EXPECT_TRUE(verify_generation(moved, VerifyDepth::Sha256).damage.empty());
}

TEST(CheckpointStore, AwkwardTensorsSurviveASnapshot) {
  ScratchDirectory scratch;
  CheckpointStore store(scratch / "c", keep_two());
  CheckpointState state;
  state.model = {{"channels_last", torch::randn({2, 3, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast)},
                 {"strided", torch::randn({100}).slice(0, 0, 100, 3)},
                 {"half", torch::randn({9}).to(torch::kBFloat16)},
                 {"counter", torch::tensor(int64_t{7})},
                 {"empty", torch::empty({0, 4})},
                 {"leaf", torch::randn({5}, torch::requires_grad())}};
  store.save(state, 1);
  const auto loaded = store.load_newest();
  ASSERT_EQ(loaded->state.model.size(), state.model.size());
  for (size_t i = 0; i < state.model.size(); ++i)
    EXPECT_TRUE(loaded->state.model[i].second.equal(state.model[i].second)) << i;
}

TEST(CheckpointStore, RetentionKeepsTheLastAndTheBest) {
  ScratchDirectory scratch;
  CheckpointConfig config;
  config.save_top_k = 1;
  CheckpointStore store(scratch / "c", config);
  const double losses[] = {5, 3, 1, 4, 6, 2};
  for (int64_t i = 0; i < 6; ++i) store.save(state_at(i + 1), i + 1, losses[i]);
  store.wait();
  EXPECT_THAT(steps_of(store), ElementsAre(3, 5, 6));
  EXPECT_EQ(store.best()->step, 3);
  EXPECT_THAT(names_in(scratch / "c"), ElementsAre("step-00000003", "step-00000005", "step-00000006"));
}

TEST(CheckpointStore, LeftoversGoWithTheFirstSaveAndReadersTouchNothing) {
  ScratchDirectory scratch;
  fs::create_directories(scratch.path() / "c" / ".tmp-step-00000001-99-0");
  fs::create_directories(scratch.path() / "c" / ".trash-step-00000001-99-0");
  CheckpointStore store(scratch / "c", keep_two());
  EXPECT_FALSE(store.load_newest().has_value());
  EXPECT_EQ(names_in(scratch / "c").size(), 2u);
  store.save_sync(state_at(5), 5);
  EXPECT_THAT(names_in(scratch / "c"), ElementsAre("step-00000005"));
}

TEST(CheckpointStore, SupersededGenerationsAreSetAside) {
  ScratchDirectory scratch;
  CheckpointConfig config;
  config.save_top_k = -1;
  CheckpointStore store(scratch / "c", config);
  for (int64_t step : {1, 2, 3}) store.save_sync(state_at(step), step);
  store.set_aside_after(1);
  EXPECT_EQ(store.load_newest()->info.step, 1);
  EXPECT_THAT(names_in(scratch / "c"),
              ElementsAre("step-00000001", "superseded-step-00000002", "superseded-step-00000003"));
  EXPECT_TRUE(store.save_sync(state_at(2), 2).written);
}

class CheckpointErrors : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::Error); }
  void TearDown() override { set_log_level(LogLevel::Info); }
};

// "Advance by one": the disk fails at the n-th operation of a save, for every n, once or for good, until no failure is
// reached.
TEST_F(CheckpointErrors, EveryFailingOperationLeavesThePreviousGeneration) {
  for (const int64_t count : {int64_t{1}, int64_t{2}, INT64_MAX / 2}) {
    for (const bool async : {false, true}) {
      int64_t degraded_runs = 0, saved_runs = 0;
      for (int64_t at = 0;; ++at) {
        ScratchDirectory scratch;
        CheckpointConfig config = keep_two();
        config.async = async;
        SeenEvents events;
        FailingFileOps ops(posix_file_ops());
        CheckpointStore store(scratch / "c", config, events.sink(), ops);
        store.save_sync(state_at(1, 300'000), 1);
        store.save_sync(state_at(2), 2);
        const int64_t begin = ops.operations();
        ops.fail_at(begin + at, count);
        store.save(state_at(3, 300'000), 3);
        store.wait();
        const bool reached = ops.operations() > begin + at;
        EXPECT_EQ(ops.reused_after_failure(), 0) << "operation " << at;
        ops.fail_at(0, 0);
        const bool degraded = store.degraded();
        const auto loaded = CheckpointStore(scratch / "c", config).load_newest();
        ASSERT_TRUE(loaded.has_value());
        // Degraded although step 3 is there: it was renamed, but nobody could confirm that the name is durable.
        EXPECT_TRUE(loaded->info.step == 3 || (degraded && loaded->info.step == 2))
            << "operation " << at << " count " << count;
        EXPECT_TRUE(equal_states(loaded->state, state_at(loaded->info.step, loaded->info.step == 2 ? 1000 : 300'000)));
        if (degraded) {
          EXPECT_THAT(events.kinds, Contains("checkpoint_degraded"));
          EXPECT_TRUE(store.save_sync(state_at(4), 4).written);  // the disk has room again
          EXPECT_FALSE(store.degraded());
        }
        EXPECT_EQ(CheckpointStore::load(scratch / "c").info.step, degraded ? 4 : 3);
        (degraded ? degraded_runs : saved_runs)++;
        if (!reached) break;
      }
      EXPECT_GT(saved_runs, 1);
      if (count == 1) {
        EXPECT_EQ(degraded_runs, 0);  // one failure is always survived by writing once more
      } else if (count > 2) {
        EXPECT_GT(degraded_runs, 10);
      }
    }
  }
}

TEST_F(CheckpointErrors, StopMeansDiskError) {
  for (const bool async : {false, true}) {
    ScratchDirectory scratch;
    CheckpointConfig config = keep_two();
    config.async = async;
    config.on_error = "stop";
    FailingFileOps ops(posix_file_ops());
    CheckpointStore store(scratch / "c", config, {}, ops);
    ops.fail_at(ops.operations(), INT64_MAX / 2);
    try {
      store.save(state_at(1), 1);
      store.wait();
      FAIL() << "expected DiskError";
    } catch (const DiskError& error) {
      EXPECT_EQ(error.code(), ExitCode::Disk);
    }
    EXPECT_TRUE(store.degraded());
  }
}

TEST_F(CheckpointErrors, OnlyWhatIsMissingIsDamage) {
  for (const int error : {ENOENT, ENOTDIR, EISDIR}) EXPECT_TRUE(is_damage(error)) << error;
  for (const int error : {0, EIO, ESTALE, EMFILE, ENFILE, EACCES, EPERM, ENOMEM, EINTR, EAGAIN, ETIMEDOUT, ENODEV,
                          ENXIO, EHOSTDOWN, ENOTCONN, EREMOTEIO, ELOOP, EOVERFLOW, EBADF})
    EXPECT_FALSE(is_damage(error)) << error;
}

std::string failing_name;
int failing_with_eio(const fs::path& path) { return path.filename() == failing_name ? EIO : 0; }

// An old manifest that cannot be read now: the new generation is saved and whole, nothing is removed by guesswork.
TEST_F(CheckpointErrors, RetentionWaitsForADiskThatCannotBeRead) {
  ScratchDirectory scratch;
  CheckpointStore store(scratch / "c", keep_two());
  store.save_sync(state_at(1), 1);
  store.save_sync(state_at(2), 2);
  failing_name = "MANIFEST.json";
  reading_fault = &failing_with_eio;
  EXPECT_TRUE(store.save_sync(state_at(3), 3).written);
  EXPECT_THROW(store.load_newest(), DiskError);
  EXPECT_THROW(verify_generation(scratch / "c/step-00000003", VerifyDepth::Crc), DiskError);
  reading_fault = nullptr;
  EXPECT_FALSE(store.degraded());
  EXPECT_THAT(names_in(scratch / "c"), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  store.save_sync(state_at(4), 4);
  EXPECT_THAT(names_in(scratch / "c"), ElementsAre("step-00000003", "step-00000004"));
}

TEST_F(CheckpointErrors, OnlyDamagedGenerationsIsAnError) {
  ScratchDirectory scratch;
  CheckpointStore store(scratch / "c", keep_two());
  store.save_sync(state_at(1), 1);
  fs::resize_file(scratch.path() / "c" / "step-00000001" / "model.safetensors", 100);
  CheckpointStore reader(scratch / "c", keep_two());
  try {
    reader.load_newest();
    FAIL() << "expected CheckpointError";
  } catch (const CheckpointError& error) {
    EXPECT_EQ(error.code(), ExitCode::NoCheckpoint);
    EXPECT_THAT(error.what(), HasSubstr("model.safetensors, block 0"));
  }
  EXPECT_THAT(names_in(scratch / "c"), ElementsAre("step-00000001")) << "with nothing to fall back to, nothing moves";
  EXPECT_THROW(reader.load_newest(), CheckpointError);
  EXPECT_THROW(CheckpointStore::load(scratch / "nothing"), CheckpointError);
  EXPECT_THROW(CheckpointStore::load(scratch / "c"), CheckpointError);
}

}  // namespace
}  // namespace redline::train
