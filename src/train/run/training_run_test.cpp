// Whole runs of the example task in a run directory: what is written, resumed, refused.
#include "train/run/training_run.h"

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
#include "measure/faults.h"
#include "train/job/summary.h"
#include "train/job/weights.h"
#include "train/loop/signals.h"
#include "train/run/evaluate.h"
#include "train/run/probe.h"
#include "train/run/trial.h"
#include "train/testing/harness.h"

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

TEST(TrainingRun, DryRunWritesNothing) {
  TemporaryFolder folder;
  const auto lines = dry_run(*job_in(folder, {}));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("longest samples")));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("steps per epoch")));
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
  EXPECT_TRUE(load_weights(task->module(), chosen.tensors).complete());
  EXPECT_NEAR(evaluate(*job, *task).metrics.at("val_loss"), recorded, 1e-6);
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
