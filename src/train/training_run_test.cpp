// Whole runs of the example task in a run directory: what is written, resumed, refused.
#include "train/training_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "measure/faults.h"
#include "train/checkpoint/block_reader.h"
#include "train/evaluate.h"
#include "train/job/summary.h"
#include "train/probe.h"
#include "train/run/run_state.h"
#include "train/signals.h"
#include "train/testing/harness.h"
#include "train/trial.h"
#include "train/weights.h"

namespace redline::train {
namespace {

using ::testing::HasSubstr;
using testing::TemporaryFolder;

std::unique_ptr<Job> job_in(const TemporaryFolder& folder, std::vector<std::string> overrides) {
  overrides.push_back("exp_manager.run_dir=" + (folder.path() / "run").string());
  return testing::make_job(overrides);
}

std::map<std::string, torch::Tensor> newest_weights(const TemporaryFolder& folder) {
  return read_weights(folder.path() / "run");
}

TEST(TrainingRun, WritesARecordThatCanBeRead) {
  TemporaryFolder folder;
  auto job = job_in(folder, {"trainer.max_epochs=1", "exp_manager.histograms_every_n_steps=10"});
  RunOptions options;
  options.trace = measure::StepRange{3, 6};
  const RunSummary summary = run_training(*job, options);
  EXPECT_EQ(summary.fit.steps, 32);
  const measure::RunRecord record = measure::read_run(folder.path() / "run");
  ASSERT_EQ(record.steps.size(), 32u);
  EXPECT_EQ(record.steps.back().step, 32);
  EXPECT_THAT(record.config_yaml, HasSubstr("task"));
  EXPECT_FALSE(record.metrics.empty());
  for (const char* name : {"metrics.csv", "metrics.jsonl", "trace.json", "machine.json", "tensorboard"})
    EXPECT_TRUE(std::filesystem::exists(folder.path() / "run" / name)) << name;
  const auto trace = nlohmann::json::parse(read_file(folder.path() / "run" / "trace.json"));
  EXPECT_TRUE(trace.contains("traceEvents"));
}

TEST(TrainingRun, ResumesBitByBitAcrossProcessesAndSettingsThatDoNotMatter) {
  TemporaryFolder whole, parts;
  run_training(*job_in(whole, {"trainer.max_steps=50", "model.train_ds.shuffle=true"}), {});
  run_training(*job_in(parts, {"trainer.max_steps=13", "model.train_ds.shuffle=true"}), {});
  run_training(*job_in(parts, {"trainer.max_steps=37", "model.train_ds.shuffle=true", "model.train_ds.num_workers=2"}),
               {});
  const RunSummary last = run_training(
      *job_in(parts, {"trainer.max_steps=50", "model.train_ds.shuffle=true", "model.train_ds.prefetch_factor=4"}), {});
  EXPECT_EQ(last.started_at_step, 37);
  EXPECT_TRUE(testing::bit_equal(newest_weights(whole), newest_weights(parts)));
  const auto a = measure::read_run(whole.path() / "run"), b = measure::read_run(parts.path() / "run");
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << i;
  // A finished run says so and changes nothing.
  EXPECT_EQ(run_training(*job_in(parts, {"trainer.max_steps=50", "model.train_ds.shuffle=true"}), {}).fit.steps, 50);
}

// A slow phase takes most of the time, so that a signal lands in it.
TEST(TrainingRun, SignalsInEveryPhaseEndWithACheckpointAndResume) {
  const std::vector<std::string> settings = {"trainer.max_steps=12", "trainer.val_check_interval=3",
                                             "trainer.log_every_n_steps=1", "trainer.accumulate_grad_batches=2",
                                             "exp_manager.checkpoint_callback_params.every_n_train_steps=2"};
  TemporaryFolder whole;
  run_training(*job_in(whole, settings), {});
  const auto expected = newest_weights(whole);
  int stopped = 0;
  for (size_t phase = 0; phase < measure::kNumPhases; ++phase) {
    const int number = std::array{SIGTERM, SIGUSR1, SIGINT}[phase % 3];
    TemporaryFolder folder;
    std::signal(number, SIG_IGN);  // outside a run, where the sender may be too late
    measure::faults::add_delay(static_cast<measure::Phase>(phase), 0.02, measure::faults::DelayKind::Sleep);
    std::thread sender([number] {
      std::this_thread::sleep_for(std::chrono::milliseconds(60));
      std::raise(number);
    });
    try {
      run_training(*job_in(folder, settings), {});
    } catch (const PreemptedError& error) {
      EXPECT_EQ(error.code(), ExitCode::Preempted);
      ++stopped;
    }
    sender.join();
    measure::faults::clear();
    StopFlag::clear();
    run_training(*job_in(folder, settings), {});
    EXPECT_TRUE(testing::bit_equal(expected, newest_weights(folder))) << phase;
    const auto record = measure::read_run(folder.path() / "run");
    EXPECT_EQ(record.steps.back().step, 12) << phase;
    std::signal(number, SIG_DFL);
  }
  EXPECT_GE(stopped, 5);
}

TEST(TrainingRun, LoadFromListsWhatDoesNotFit) {
  TemporaryFolder first, second;
  run_training(*job_in(first, {"trainer.max_steps=5"}), {});
  auto weights = newest_weights(first);
  const auto partial = (first.path() / "partial.safetensors").string();
  NamedTensors some = {{"first.weight", weights.at("first.weight")}, {"extra", torch::ones({2})}};
  write_safetensors_atomic(partial, some);
  auto task = testing::make_job({})->build_task();
  const WeightsReport report = load_weights(task->module(), read_weights(partial));
  EXPECT_THAT(report.loaded, ::testing::ElementsAre("first.weight"));
  EXPECT_THAT(report.unexpected, ::testing::ElementsAre("extra"));
  EXPECT_THAT(report.missing, ::testing::Contains("second.bias"));
  EXPECT_THAT(report.text(), HasSubstr("1 tensors loaded"));
  EXPECT_NO_THROW(run_training(*job_in(second, {"trainer.max_steps=1", "load_from=" + partial}), {}));
  TemporaryFolder third;
  EXPECT_THROW(run_training(*job_in(third, {"trainer.max_steps=1", "load_from=" + partial, "load_strict=true"}), {}),
               CheckpointError);
}

TEST(TrainingRun, BadPlacesGetOneSentence) {
  TemporaryFolder folder;
  std::ofstream(folder.path() / "file") << "x";
  EXPECT_THROW(run_training(*testing::make_job({"trainer.max_steps=1",
                                                "exp_manager.run_dir=" + (folder.path() / "file" / "run").string()}),
                            {}),
               Error);
  run_training(*job_in(folder, {"trainer.max_steps=2"}), {});
  EXPECT_THROW(run_training(*job_in(folder, {"trainer.max_steps=3", "exp_manager.resume=none"}), {}), ConfigError);
  EXPECT_THROW(run_training(*job_in(folder, {"trainer.max_steps=3", "model.hidden=7"}), {}),
               CheckpointError);  // another model
  EXPECT_THROW(testing::make_job({"task=curv"}), ConfigError);
}

// Every file with its bytes and time, every directory with its time: two of them are equal when nothing was touched.
std::map<std::string, std::string> everything_in(const std::filesystem::path& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const auto time = entry.last_write_time().time_since_epoch().count();
    found[entry.path().string()] = std::to_string(time) + (entry.is_regular_file() ? read_file(entry.path()) : "");
  }
  return found;
}

const std::vector<std::string> kSavesOften = {"trainer.max_steps=6",
                                              "exp_manager.checkpoint_callback_params.every_n_train_steps=2",
                                              "exp_manager.checkpoint_callback_params.async=false"};

void damage_all(const std::filesystem::path& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints"))
    std::filesystem::resize_file(entry.path() / "model.safetensors", 100);
}

std::string refusal_of(const TemporaryFolder& folder, const std::vector<std::string>& settings, ExitCode code) {
  try {
    run_training(*job_in(folder, settings), {});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "the run was not refused";
  return "";
}

class Refusals : public ::testing::Test {
 protected:
  void SetUp() override { set_log_level(LogLevel::Error); }
  void TearDown() override {
    reading_fault = nullptr;
    set_log_level(LogLevel::Info);
  }
};

TEST_F(Refusals, ARunWithoutAUsableCheckpointIsNeverStartedAgainByItself) {
  TemporaryFolder folder;
  const std::filesystem::path run = folder.path() / "run";
  run_training(*job_in(folder, kSavesOften), {});
  damage_all(run);
  const auto before = everything_in(run);
  for (int start = 0; start < 3; ++start) {
    const std::string said = refusal_of(folder, kSavesOften, ExitCode::NoCheckpoint);
    EXPECT_THAT(said, HasSubstr("step-00000006 is damaged"));
    EXPECT_THAT(said, HasSubstr("step-00000004 is damaged"));
    EXPECT_THAT(said, HasSubstr("--start-afresh"));
    EXPECT_EQ(everything_in(run), before) << start;
  }
  RunOptions afresh;
  afresh.start_afresh = true;
  const RunSummary again = run_training(*job_in(folder, kSavesOften), afresh);
  EXPECT_EQ(again.started_at_step, 0);
  EXPECT_EQ(again.fit.steps, 6);
  EXPECT_TRUE(std::filesystem::exists(run / "checkpoints.abandoned" / "step-00000006" / "MANIFEST.json"));
  // With a usable one the word is without effect: left in a script, it costs nothing.
  EXPECT_EQ(run_training(*job_in(folder, kSavesOften), afresh).started_at_step, 6);
  EXPECT_FALSE(std::filesystem::exists(run / "checkpoints.abandoned-2"));
}

// Each of the traces alone is enough: names (older versions set the damaged ones aside), run.json, the record.
TEST_F(Refusals, EveryTraceOfACheckpointCounts) {
  const auto fresh_run = [](const TemporaryFolder& folder) {
    run_training(*job_in(folder, kSavesOften), {});
    return folder.path() / "run";
  };
  {
    TemporaryFolder folder;
    const auto run = fresh_run(folder), checkpoints = run / "checkpoints";
    damage_all(run);
    for (const char* name : {"step-00000004", "step-00000006"})
      std::filesystem::rename(checkpoints / name, checkpoints / (std::string("quarantine-") + name));
    std::filesystem::remove(run / kRunStateName);
    std::filesystem::remove(run / "events.jsonl");
    EXPECT_THAT(refusal_of(folder, kSavesOften, ExitCode::NoCheckpoint), HasSubstr("quarantine-step-00000006"));
  }
  for (const char* removed : {"events.jsonl", kRunStateName}) {
    TemporaryFolder folder;
    const auto run = fresh_run(folder);
    std::filesystem::remove_all(run / "checkpoints");
    std::filesystem::remove(run / removed);
    EXPECT_THAT(refusal_of(folder, kSavesOften, ExitCode::NoCheckpoint), HasSubstr("'checkpoints' is gone"));
  }
  {  // control: without any of them, a run that never had one begins at step 0
    TemporaryFolder folder;
    const auto run = fresh_run(folder);
    std::filesystem::remove_all(run / "checkpoints");
    std::filesystem::remove(run / "events.jsonl");
    std::filesystem::remove(run / kRunStateName);
    EXPECT_EQ(run_training(*job_in(folder, kSavesOften), {}).started_at_step, 0);
  }
  {  // control: one that was killed in its first save has lost nothing
    TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() / "run" / "checkpoints" / ".tmp-step-00000002-7-0");
    EXPECT_EQ(run_training(*job_in(folder, kSavesOften), {}).fit.steps, 6);
  }
}

int fault_error = 0;
const char* fault_name = "";
int fault_of(const std::filesystem::path& path) { return path.filename() == fault_name ? fault_error : 0; }

TEST_F(Refusals, ErrorsThatPassAreNoDamageAndChangeNothing) {
  TemporaryFolder folder;
  run_training(*job_in(folder, kSavesOften), {});
  const auto before = everything_in(folder.path());
  reading_fault = &fault_of;
  for (const char* name :
       {"checkpoints", "MANIFEST.json", "model.safetensors", "optimizer.safetensors", "state.json"}) {
    for (const int error : {EIO, ESTALE, EMFILE, ENFILE, EACCES, EPERM, ENOMEM, ETIMEDOUT}) {
      fault_name = name, fault_error = error;
      EXPECT_THAT(refusal_of(folder, kSavesOften, ExitCode::Disk), HasSubstr("Cannot read '")) << name << error;
      EXPECT_THROW(read_weights(folder.path() / "run"), DiskError) << name << error;
      EXPECT_EQ(everything_in(folder.path()), before) << name << error;
    }
  }
  // Control: a file that is not there is damage; the one before is used and the damaged one set aside.
  fault_name = "", fault_error = 0;
  std::filesystem::remove(folder.path() / "run/checkpoints/step-00000006/optimizer.safetensors");
  EXPECT_EQ(run_training(*job_in(folder, kSavesOften), {}).started_at_step, 4);
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "run/checkpoints/quarantine-step-00000006"));
}

TEST_F(Refusals, ARefusedResumeChangesNothing) {
  TemporaryFolder folder, other;
  run_training(*job_in(folder, kSavesOften), {});
  run_training(*job_in(other, {"trainer.max_steps=2", "model.hidden=7"}), {});
  const auto before = everything_in(folder.path()), elsewhere = everything_in(other.path());
  const auto with = [](const std::string& word) {
    std::vector<std::string> words = kSavesOften;
    words.push_back(word);
    return words;
  };
  refusal_of(folder, with("model.hidden=7"), ExitCode::NoCheckpoint);
  refusal_of(folder, with("exp_manager.resume=none"), ExitCode::Usage);
  refusal_of(folder, with("exp_manager.resume=" + (other.path() / "run").string()), ExitCode::NoCheckpoint);
  EXPECT_EQ(everything_in(folder.path()), before);
  {
    const measure::RunLock lock = measure::RunLock::quietly(folder.path() / "run");
    EXPECT_THAT(refusal_of(folder, kSavesOften, ExitCode::Usage), HasSubstr("is in use by process"));
    EXPECT_EQ(everything_in(folder.path()), before);
  }
  // A path in another run is read only, also when its newest is damaged.
  std::filesystem::resize_file(other.path() / "run/checkpoints/step-00000002/model.safetensors", 100);
  const auto damaged = everything_in(other.path());
  refusal_of(folder, with("exp_manager.resume=" + (other.path() / "run").string()), ExitCode::NoCheckpoint);
  EXPECT_EQ(everything_in(other.path()), damaged);
  EXPECT_EQ(elsewhere.size(), damaged.size());
  EXPECT_EQ(everything_in(folder.path()), before);
  EXPECT_EQ(run_training(*job_in(folder, kSavesOften), {}).started_at_step, 6);  // control: the run is as it was
}

TEST_F(Refusals, AForgedStepIsASentence) {
  TemporaryFolder folder;
  run_training(*job_in(folder, kSavesOften), {});
  CheckpointState state = CheckpointStore::load(folder.path() / "run").state;
  for (const char* field : {"step", "epoch", "step_in_epoch"}) {
    nlohmann::json json = nlohmann::json::parse(state.state_json);
    (json.contains(field) ? json[field] : json["position"][field]) = -5;
    CheckpointState forged = state;
    forged.state_json = json.dump();
    const auto path = folder.path() / field;
    CheckpointStore(path, CheckpointConfig()).save_sync(forged, 6);
    EXPECT_THAT(
        refusal_of(folder, {"trainer.max_steps=9", "exp_manager.resume=" + path.string()}, ExitCode::NoCheckpoint),
        HasSubstr(std::string(field) + " -5"));
  }
}

TEST(TrainingRun, SettingsHashedByAnOlderVersionAreNotCalledOthers) {
  TemporaryFolder folder;
  run_training(*job_in(folder, kSavesOften), {});
  CheckpointState state = CheckpointStore::load(folder.path() / "run").state;
  const auto words_of_resuming = [&](const std::string& hash) {
    nlohmann::json json = nlohmann::json::parse(state.state_json);
    json["config_hash"] = hash;
    state.state_json = json.dump();
    TemporaryFolder other;
    CheckpointStore(other.path() / "from", CheckpointConfig()).save_sync(state, 6);
    ::testing::internal::CaptureStderr();
    run_training(*job_in(other, {"trainer.max_steps=8", "exp_manager.resume=" + (other.path() / "from").string()}), {});
    return ::testing::internal::GetCapturedStderr();
  };
  const std::string older = words_of_resuming("0123456789abcdef"), others = words_of_resuming("xxh3:0123456789abcdef");
  EXPECT_THAT(older, HasSubstr("older redline that hashed settings"));
  EXPECT_THAT(older, ::testing::Not(HasSubstr("made with other settings")));
  EXPECT_THAT(others, HasSubstr("made with other settings"));
  EXPECT_THAT(others, ::testing::Not(HasSubstr("older redline")));
}

TEST(TrainingRun, TheSameJobIsToldByWhatWasAskedFor) {
  const auto hash = [](const std::vector<std::string>& words) { return testing::make_job(words)->request_hash(); };
  const std::string base = hash({});
  for (const char* same : {"trainer.max_steps=7", "trainer.max_epochs=3", "trainer.max_time=4h", "name=other",
                           "model.train_ds.num_workers=2", "exp_manager.new_run=true", "trainer.log_every_n_steps=9"})
    EXPECT_EQ(hash({same}), base) << same;
  for (const char* other : {"seed=7", "model.hidden=7", "model.optim.lr=0.5", "model.train_ds.batch_size=4",
                            "trainer.precision=bf16-mixed", "trainer.intra_op_threads=2"})
    EXPECT_NE(hash({other}), base) << other;
  // What `auto` became on this machine does not count.
  config::RequestSource source;
  source.overrides = {"task=curve", "model.train_ds.batch_size=8"};
  MachineFacts small, large;
  small.allowed_cpus = small.logical_cpus = 1;
  large.allowed_cpus = large.logical_cpus = 8;
  const auto one = Job::read(testing::registry(), source, small), eight = Job::read(testing::registry(), source, large);
  EXPECT_NE(one->config_hash(), eight->config_hash());
  EXPECT_EQ(one->request_hash(), eight->request_hash());
}

TEST(TrainingRun, DryRunWritesNothing) {
  TemporaryFolder folder;
  const auto lines = dry_run(*job_in(folder, {}));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("longest samples")));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("steps per epoch")));
}

// A full disk while training: log lines wait, training goes on, the record is whole in the end.
TEST(TrainingRun, LogLinesThatTheDiskRefusesAreWrittenLater) {
  for (const char* point : {"run_record.write", "csv.write", "tfevents.write"}) {
    TemporaryFolder folder;
    measure::faults::fail_once(point, 5);
    const RunSummary summary =
        run_training(*job_in(folder, {"trainer.max_steps=20", "trainer.log_every_n_steps=1"}), {});
    for (int i = 0; i < 5; ++i) EXPECT_FALSE(measure::faults::take(point)) << point << " was not reached";
    measure::faults::clear();
    EXPECT_EQ(summary.fit.steps, 20);
    const auto record = measure::read_run(folder.path() / "run");
    EXPECT_EQ(record.steps.size(), 20u) << point;
    EXPECT_TRUE(record.warnings.empty()) << point;
    int64_t losses = 0;
    for (const auto& metric : record.metrics) losses += metric.name == "loss";
    EXPECT_EQ(losses, 20) << point;
    std::ifstream csv(folder.path() / "run" / "metrics.csv");
    int64_t lines = 0;
    for (std::string line; std::getline(csv, line);) ++lines;
    EXPECT_GE(lines, 21) << point;
  }
}

TEST(TrainingRun, AStopBeforeTheFirstStepTouchesNothing) {
  TemporaryFolder folder;
  const auto job = job_in(folder, {"trainer.max_steps=20"});
  const SignalScope signals;
  StopFlag::request(SIGTERM);
  try {
    run_training(*job, {});
    ADD_FAILURE() << "it trained";
  } catch (const PreemptedError& error) {
    EXPECT_THAT(error.what(), HasSubstr("Stopped by SIGTERM before the first step"));
  }
  StopFlag::clear();
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
}

TEST(Evaluate, GivesTheRecordedValueAlsoOfAveragesAndOfAPartOfTheData) {
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"exp_manager.ema.enable=true", "exp_manager.ema.decay=0.9"},
        {"exp_manager.ema.enable=true", "exp_manager.ema.validate_original_weights=true"},
        {"trainer.limit_val_batches=2", "trainer.precision=bf16-mixed"}}) {
    TemporaryFolder folder;
    std::vector<std::string> words = settings;
    words.emplace_back("trainer.max_epochs=1");
    run_training(*job_in(folder, words), {});
    double recorded = -1;
    for (const auto& point : measure::read_run(folder.path() / "run").metrics)
      if (point.name == "val_loss") recorded = point.value;
    MachineFacts machine;
    machine.allowed_cpus = 2;
    const auto job = read_run_job(testing::registry(), folder.path() / "run", {}, machine);
    const auto task = job->build_task();
    const ChosenWeights chosen = choose_weights(folder.path() / "run", "last", job->exp_manager());
    load_chosen(chosen, *task);
    EXPECT_EQ(evaluate(*job, *task, chosen).metrics.at("val_loss"), recorded) << settings[0];
  }
}

TEST(Evaluate, MetricsAndPredictionsOfARun) {
  TemporaryFolder folder;
  run_training(*job_in(folder, {"trainer.max_epochs=2"}), {});
  const auto record = measure::read_run(folder.path() / "run");
  double recorded = -1;
  for (const auto& point : record.metrics)
    if (point.name == "val_loss") recorded = point.value;
  MachineFacts machine;
  machine.allowed_cpus = 2;
  const auto job = read_run_job(testing::registry(), folder.path() / "run", {}, machine);
  const auto task = job->build_task();
  const ChosenWeights chosen = choose_weights(folder.path() / "run", "last", job->exp_manager());
  EXPECT_EQ(chosen.step, 64);
  load_chosen(chosen, *task);
  EXPECT_EQ(evaluate(*job, *task, chosen).metrics.at("val_loss"), recorded);
  const Predictions predictions = predict(*job, *task);
  EXPECT_EQ(predictions.sample_ids.size(), 64u);
  EXPECT_EQ(predictions.outputs.at("prediction").size(0), 64);
  write_predictions(predictions, folder.path() / "p.safetensors");
  write_predictions(predictions, folder.path() / "p.parquet");
  EXPECT_TRUE(torch::equal(read_safetensors(folder.path() / "p.safetensors").tensors.at("prediction"),
                           predictions.outputs.at("prediction")));
  EXPECT_TRUE(std::filesystem::file_size(folder.path() / "p.parquet") > 1000);
  EXPECT_THROW(read_run_job(testing::registry(), folder.path(), {}, machine), DataError);
}

TEST(Probe, GivenTensorsGiveLossesOutputsAndGradients) {
  TemporaryFolder folder;
  const auto job = testing::make_job({"model.dropout=0.0", "model.optim.name=sgd", "model.optim.lr=0.1"});
  const auto task = job->build_task();
  NamedTensors weights;
  for (const auto& item : task->module().named_parameters())
    weights.emplace_back(item.key(), item.value().detach().to(torch::kFloat16));
  write_safetensors_atomic(folder.path() / "w.safetensors", weights);
  task::Batch batch = task->worst_case_batch(4);
  NamedTensors tensors(batch.tensors.begin(), batch.tensors.end());
  write_safetensors_atomic(folder.path() / "b.safetensors", tensors);
  const ProbeResult result = run_probe(*job, {folder.path() / "w.safetensors", folder.path() / "b.safetensors", 3});
  ASSERT_EQ(result.losses.size(), 3u);
  EXPECT_LT(result.losses[2], result.losses[0]);
  EXPECT_EQ(result.tensors.at("losses").scalar_type(), torch::kFloat64);
  EXPECT_TRUE(result.tensors.count("prediction"));

  // The same by hand.
  load_weights(task->module(), read_weights(folder.path() / "w.safetensors"));
  task::Context context(0, 0, true, batch.sample_ids);
  const task::Loss loss = task->loss(batch, context);
  loss.value.backward();
  EXPECT_NEAR(loss.value.item<double>(), result.losses[0], 1e-7);
  for (const auto& item : task->module().named_parameters())
    EXPECT_TRUE(torch::allclose(item.value().grad(), result.tensors.at("grad." + item.key()))) << item.key();

  weights.pop_back();
  write_safetensors_atomic(folder.path() / "few.safetensors", weights);
  EXPECT_THROW(run_probe(*job, {folder.path() / "few.safetensors", folder.path() / "b.safetensors", 1}),
               CheckpointError);
  tensors[0].second = torch::ones({4, 3});
  write_safetensors_atomic(folder.path() / "bad.safetensors", tensors);
  EXPECT_THROW(run_probe(*job, {folder.path() / "w.safetensors", folder.path() / "bad.safetensors", 1}), DataError);
}

TEST(Trial, RunsReplaysAndLoadsOnly) {
  config::RequestSource source;
  source.overrides = {"task=curve", "model.train_ds.batch_size=8", "model.train_ds.num_workers=1",
                      "trainer.log_every_n_steps=2", "trainer.intra_op_threads=1"};
  MachineFacts machine;
  machine.allowed_cpus = 2;
  TrialOptions plain, replay, loader;
  replay.free_loader = true;
  replay.log = replay.validate = false;
  loader.loader_only = true;
  Trial a(testing::registry(), source, machine, plain), b(testing::registry(), source, machine, replay),
      c(testing::registry(), source, machine, loader);
  const TrialResult first = a.run(4);
  ASSERT_EQ(first.rows.size(), 4u);
  EXPECT_EQ(b.run(3).rows.size(), 3u);
  EXPECT_EQ(a.run(2).rows[0].step, 5);  // it goes on where it was
  const TrialResult waits = c.run(5);
  EXPECT_EQ(waits.rows.size(), 5u);
  EXPECT_EQ(waits.rows[0].phase_ns[static_cast<size_t>(measure::Phase::Forward)], 0);
  EXPECT_GT(waits.rows[0].samples, 0);
  const CheckpointState state = a.state();
  const TrialResult next = a.run(3);
  a.load(state);
  EXPECT_EQ(a.run(1).rows[0].loss, next.rows[0].loss);
  // A free loader: the same samples, and nothing to wait for.
  a.vary(replay);
  a.load(state);
  const TrialResult ahead = a.run(3);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ahead.rows[i].loss, next.rows[i].loss);
    EXPECT_EQ(ahead.rows[i].phase_ns[static_cast<size_t>(measure::Phase::Wait)], 0);
    EXPECT_EQ(ahead.rows[i].phase_ns[static_cast<size_t>(measure::Phase::Log)], 0);
  }
  EXPECT_GT(next.rows[1].phase_ns[static_cast<size_t>(measure::Phase::Log)], 0);  // step 8: every second
  EXPECT_FALSE(a.run_operators().empty());
}

TEST(Trial, ACheckpointCostsOnlyARunThatKeepsThem) {
  config::RequestSource source;
  source.overrides = {"task=curve", "model.train_ds.batch_size=8", "model.train_ds.num_workers=0"};
  MachineFacts machine;
  machine.allowed_cpus = 2;
  TrialOptions options;
  options.checkpoint = true;
  for (const char* async : {"true", "false"}) {
    config::RequestSource keeps = source;
    keeps.overrides.push_back(std::string("exp_manager.checkpoint_callback_params.async=") + async);
    Trial trial(testing::registry(), keeps, machine, options);
    trial.run(1);
    const auto seconds = trial.time_checkpoint();
    ASSERT_TRUE(seconds.has_value());
    EXPECT_GT(*seconds, 0);
  }
  source.overrides.push_back("exp_manager.create_checkpoint_callback=false");
  Trial none(testing::registry(), source, machine, options);
  none.run(1);
  EXPECT_FALSE(none.time_checkpoint().has_value());
}

TEST(Trial, BatchesBoundedByLengthHoldAsManyOfTheLongestAsFit) {
  const auto rows = [](const char* bound) {
    return rows_at_once(*testing::make_job({"model.train_ds.batch_size=0", "model.train_ds.max_sequence_length=30",
                                            std::string("model.train_ds.batch_tokens=") + bound}));
  };
  EXPECT_EQ(rows("100"), 3);
  EXPECT_EQ(rows("20"), 1);
  EXPECT_EQ(rows_at_once(*testing::make_job({"model.train_ds.batch_size=8"})), 8);
}

TEST(Summary, CountsParameters) {
  const auto task = testing::make_job({"model.features=8", "model.hidden=32"})->build_task();
  EXPECT_EQ(model_size(task->module()).parameters, 8 * 32 + 32 + 32 + 1);
  EXPECT_THAT(model_summary(task->module()), HasSubstr("Linear"));
}

}  // namespace
}  // namespace redline::train
