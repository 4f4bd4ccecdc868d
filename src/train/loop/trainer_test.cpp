#include "train/loop/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/hash.h"
#include "train/signals.h"
#include "train/step/batches.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

using testing::bit_equal;
using testing::difference;
using testing::Loop;

// Gradients of one step of 8 samples with dropout on, computed in `pieces` parts.
std::map<std::string, torch::Tensor> gradients_of(int64_t pieces, double* loss, double scale = 1.0) {
  Loop loop({"model.dropout=0.4"});
  task::Batch whole = to_task_batch(*loop.train->next(), nullptr);
  measure::StepClock clock;
  Alone agreement;
  EagerStep compute(*loop.task, torch::kCPU, clock, agreement);
  compute.begin({7, 3, Precision::Fp32, scale, pieces});
  const int64_t rows = whole.size() / pieces;
  for (int64_t i = 0; i < pieces; ++i)
    compute.add(narrow_batch(whole, loop.task->schema(), i * rows, rows), i + 1 == pieces);
  const StepVerdict result = compute.finish();
  *loss = result.loss();
  std::map<std::string, torch::Tensor> gradients;
  for (const auto& item : loop.task->module().named_parameters())
    gradients[item.key()] = item.value().grad() / compute.divisor(result.weight);
  return gradients;
}

TEST(EagerStep, OneBatchSplitInPiecesHasTheSameLossAndGradients) {
  double whole_loss = 0;
  const auto whole = gradients_of(1, &whole_loss);
  for (int64_t pieces : {2, 4, 8}) {
    double loss = 0;
    const auto split = gradients_of(pieces, &loss);
    EXPECT_NEAR(loss, whole_loss, 2e-7 * whole_loss) << pieces;
    EXPECT_LT(difference(whole, split), 1e-6) << pieces;
  }
  double loss = 0;
  EXPECT_LT(difference(whole, gradients_of(4, &loss, 1024.0)), 1e-6);  // loss scaling is taken out again
}

TEST(EagerStep, NegativeControlAveragingPiecesWithoutWeightsIsNotTheSame) {
  double whole_loss = 0;
  const auto whole = gradients_of(1, &whole_loss);
  Loop loop({"model.dropout=0.4"});
  task::Batch batch = to_task_batch(*loop.train->next(), nullptr);
  measure::StepClock clock;
  std::map<std::string, torch::Tensor> mean;
  for (int64_t i = 0; i < 4; ++i) {
    Alone agreement;
    EagerStep compute(*loop.task, torch::kCPU, clock, agreement);
    compute.begin({7, 3, Precision::Fp32, 1.0, 1});
    compute.add(narrow_batch(batch, loop.task->schema(), i * 2, 2), /*last=*/true);
    compute.finish();
  }
  for (const auto& item : loop.task->module().named_parameters()) mean[item.key()] = item.value().grad() / 4;
  EXPECT_GT(difference(whole, mean), 1e-3);
}

TEST(Trainer, LearnsTheExample) {
  Loop loop({"trainer.max_epochs=12", "model.dropout=0.0", "model.optim.lr=0.02"});
  const FitResult result = loop.trainer->fit();
  EXPECT_EQ(result.stop, StopReason::MaxEpochs);
  EXPECT_EQ(result.steps, 12 * 32);
  EXPECT_LT(loop.seen.validations.back().metrics.at("val_loss"),
            0.5 * loop.seen.validations.front().metrics.at("val_loss"));
  EXPECT_EQ(loop.seen.validations.size(), 12u);
  EXPECT_TRUE(loop.seen.validations.back().metrics.count("val_absolute_error"));
  EXPECT_EQ(loop.seen.rows.size(), 384u);
  EXPECT_EQ(loop.seen.logs.size(), 384u / 5);
  for (const measure::StepRow& row : loop.seen.rows) {
    int64_t sum = 0;
    for (int64_t phase : row.phase_ns) sum += phase;
    EXPECT_EQ(sum, row.wall_ns);
    EXPECT_EQ(row.samples, 8);
  }
}

TEST(Trainer, AccumulationEqualsTheLargeBatchAlsoInTheLastUnevenGroup) {
  // 250 samples: 20 steps of 12 and a last one of 10, whatever the split.
  const std::vector<std::string> common = {"model.samples=250", "model.dropout=0.3"};
  const auto run = [&](std::vector<std::string> overrides) {
    overrides.insert(overrides.end(), common.begin(), common.end());
    Loop loop(overrides);
    loop.trainer->run_steps(42);
    return loop.weights();
  };
  const auto large = run({"model.train_ds.batch_size=12"});
  const auto three = run({"model.train_ds.batch_size=4", "trainer.accumulate_grad_batches=3"});
  const auto six = run({"model.train_ds.batch_size=2", "trainer.accumulate_grad_batches=6"});
  const auto micro = run({"model.train_ds.batch_size=12", "model.train_ds.micro_batch_size=3"});
  EXPECT_LT(difference(large, three), 1e-4);
  EXPECT_LT(difference(large, six), 1e-4);
  EXPECT_LT(difference(large, micro), 1e-4);
  EXPECT_GT(difference(large, run({"model.train_ds.batch_size=4"})), 1e-2);  // control: another effective batch
}

TEST(Trainer, TheSameRunTwiceIsBitEqual) {
  const std::vector<std::string> settings = {"trainer.max_steps=60", "model.train_ds.shuffle=true",
                                             "trainer.intra_op_threads=2"};
  Loop a(settings), b(settings);
  a.trainer->fit();
  b.trainer->fit();
  EXPECT_TRUE(bit_equal(a.weights(), b.weights()));
  for (size_t i = 0; i < 60; ++i) EXPECT_EQ(a.seen.rows[i].loss, b.seen.rows[i].loss);
}

TEST(Trainer, WorkerCountsNeverChangeABit) {
  std::map<std::string, torch::Tensor> first;
  for (int workers : {0, 1, 2, 4}) {
    Loop loop({"trainer.max_steps=70", "model.train_ds.shuffle=true",
               "model.train_ds.num_workers=" + std::to_string(workers),
               "model.train_ds.prefetch_factor=" + std::to_string(1 + workers)});
    loop.trainer->fit();
    if (workers == 0)
      first = loop.weights();
    else
      EXPECT_TRUE(bit_equal(first, loop.weights())) << workers;
  }
}

TEST(Trainer, StateContinuesBitByBitInTheMiddleOfAnEpoch) {
  const std::vector<std::string> settings = {"model.train_ds.shuffle=true", "trainer.precision=16-mixed",
                                             "trainer.amp.growth_interval=7", "exp_manager.ema.enable=true"};
  Loop whole(settings);
  whole.trainer->run_steps(50);
  Loop first(settings), second(settings);
  first.trainer->run_steps(19);
  second.trainer->load(first.trainer->state());
  EXPECT_EQ(second.trainer->position().step, 19);
  second.trainer->run_steps(31);
  EXPECT_TRUE(bit_equal(whole.weights(), second.weights()));
  const auto state = [](Loop& loop) {
    std::map<std::string, torch::Tensor> tensors;
    for (const auto& [name, tensor] : loop.trainer->state().optimizer) tensors[name] = tensor.clone();
    return tensors;
  };
  EXPECT_TRUE(bit_equal(state(whole), state(second)));
  EXPECT_EQ(whole.trainer->state().state_json, second.trainer->state().state_json);
}

// Everything a log line says of the steps since the last one, apart from times and what depends on them.
std::map<std::string, double> lasting(const LogValues& line) {
  std::map<std::string, double> values;
  for (const char* name : {"loss", "learning_rate", "grad_norm", "epoch", "padding_share", "skipped_steps"})
    if (line.metrics.contains(name)) values[name] = line.metrics.at(name);
  return values;
}

TEST(Trainer, LogLinesAfterAResumeAreThoseOfTheUndisturbedRun) {
  const std::vector<std::string> settings = {"trainer.log_every_n_steps=8", "model.train_ds.shuffle=true"};
  Loop whole(settings);
  whole.trainer->run_steps(24);
  ASSERT_EQ(whole.seen.logs.size(), 3u);
  for (const int64_t cut : {1, 9, 13, 15, 16, 23}) {
    Loop first(settings), second(settings);
    first.trainer->run_steps(cut);
    second.trainer->load(first.trainer->state());
    second.trainer->run_steps(24 - cut);
    ASSERT_EQ(second.seen.logs.size(), static_cast<size_t>(3 - cut / 8)) << cut;
    for (size_t i = 0; i < second.seen.logs.size(); ++i)
      EXPECT_EQ(lasting(second.seen.logs[i]), lasting(whole.seen.logs[i + static_cast<size_t>(cut / 8)])) << cut;
    EXPECT_EQ(whole.trainer->state().state_json, second.trainer->state().state_json) << cut;
  }
}

TEST(Trainer, AStateOfAnOlderVersionWithoutAWindowLoads) {
  Loop first({"trainer.log_every_n_steps=8"}), second({"trainer.log_every_n_steps=8"});
  first.trainer->run_steps(13);
  CheckpointState state = first.trainer->state();
  LoopState old = LoopState::from_json(state.state_json);
  ASSERT_TRUE(old.log_window.has_value());
  EXPECT_EQ(old.log_window->steps, 5);
  old.log_window.reset();
  state.state_json = old.to_json();
  EXPECT_EQ(state.state_json.find("log_window"), std::string::npos);
  second.trainer->load(state);
  second.trainer->run_steps(3);
  ASSERT_EQ(second.seen.logs.size(), 1u);
  EXPECT_TRUE(std::isfinite(second.seen.logs[0].metrics.at("loss")));
}

TEST(LoopState, SumsComeBackBitByBit) {
  LoopState state;
  state.log_window =
      LogSums{0.1 + 0.2, 1e300 / 3, {{"a", 1.0 / 3}, {"b", std::numeric_limits<double>::infinity()}}, 3, 7, 11, 13};
  const LoopState back = LoopState::from_json(state.to_json());
  ASSERT_TRUE(back.log_window.has_value());
  EXPECT_EQ(back.log_window->weight, state.log_window->weight);
  EXPECT_EQ(back.log_window->loss, state.log_window->loss);
  EXPECT_EQ(back.log_window->metrics, state.log_window->metrics);
  EXPECT_EQ(back.to_json(), state.to_json());
}

// What loading the state says; `hash` in place of the plan's.
std::string words_of_loading(CheckpointState state, const std::string& hash) {
  const size_t at = state.state_json.find("\"plan_hash\": \"") + 14;
  state.state_json.replace(at, state.state_json.find('"', at) - at, hash);
  Loop loop;
  ::testing::internal::CaptureStderr();
  loop.trainer->load(state);
  loop.trainer->run_steps(1);
  EXPECT_EQ(loop.trainer->position().step, 3);
  return ::testing::internal::GetCapturedStderr();
}

TEST(Trainer, APlanHashedByAnOlderVersionIsNotCalledAnother) {
  Loop first;
  first.trainer->run_steps(2);
  const CheckpointState state = first.trainer->state();
  const std::string ours = identity_text(first.train->position().plan_hash);
  EXPECT_NE(state.state_json.find("\"plan_hash\": \"" + ours + "\""), std::string::npos);
  EXPECT_EQ(words_of_loading(state, ours), "");
  EXPECT_THAT(words_of_loading(state, "0123456789abcdef"), ::testing::HasSubstr("from an older redline"));
  EXPECT_THAT(words_of_loading(state, "xxh3:0123456789abcdef"), ::testing::HasSubstr("another data plan"));
}

TEST(Trainer, TwoLoopsMayTakeTurns) {
  Loop alone, a, b({"model.optim.lr=0.1"});
  alone.trainer->run_steps(8);
  for (int i = 0; i < 4; ++i) {
    a.trainer->run_steps(2);
    b.trainer->run_steps(3);
  }
  EXPECT_TRUE(bit_equal(alone.weights(), a.weights()));
}

TEST(Trainer, MixedPrecisionLearnsWithMasterWeightsInFp32) {
  for (const char* precision : {"bf16-mixed", "16-mixed"}) {
    Loop loop({"trainer.max_epochs=6", "model.dropout=0.0", std::string("trainer.precision=") + precision});
    loop.trainer->fit();
    EXPECT_LT(loop.seen.rows.back().loss, loop.seen.rows.front().loss) << precision;
    for (const auto& [name, tensor] : loop.weights()) EXPECT_EQ(tensor.scalar_type(), torch::kFloat32);
  }
}

TEST(Trainer, ClipsByNormAndByValue) {
  Loop norm({"trainer.gradient_clip_val=0.001", "model.optim.name=sgd", "model.optim.lr=1.0", "model.dropout=0"});
  const auto before = norm.weights();
  norm.trainer->run_steps(1);
  double square = 0;
  for (const auto& [name, tensor] : norm.weights()) square += (tensor - before.at(name)).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(square), 0.001, 2e-6);
  Loop value({"trainer.gradient_clip_val=0.001", "trainer.gradient_clip_algorithm=value", "model.optim.name=sgd",
              "model.optim.lr=1.0", "model.dropout=0"});
  value.trainer->run_steps(1);
  double largest = 0;
  for (const auto& [name, tensor] : value.weights())
    largest = std::max(largest, (tensor - before.at(name)).abs().max().item<double>());
  EXPECT_NEAR(largest, 0.001, 1e-6);
}

TEST(Trainer, BatchNormStatisticsWaitForTheCommit) {
  testing::fragile() = {};
  testing::fragile().batch_norm = true;
  Loop loop({"task=fragile", "trainer.accumulate_grad_batches=2"});
  const torch::Tensor before = loop.weights().at("running_mean");
  EXPECT_TRUE(torch::equal(before, torch::zeros_like(before)));
  loop.trainer->run_steps(1);
  EXPECT_FALSE(torch::equal(loop.weights().at("running_mean"), before));
  // A step that is not committed leaves them alone.
  testing::fragile().always_nan = true;
  const torch::Tensor kept = loop.weights().at("running_mean");
  EXPECT_THROW(loop.trainer->run_steps(1), DivergedError);
  EXPECT_TRUE(torch::equal(loop.weights().at("running_mean"), kept));
  testing::fragile() = {};
}

TEST(Trainer, CadencesAndLimits) {
  Loop loop({"trainer.max_epochs=2", "trainer.limit_train_batches=10", "trainer.val_check_interval=0.5",
             "trainer.limit_val_batches=1"});
  const FitResult result = loop.trainer->fit();
  EXPECT_EQ(result.steps, 20);
  EXPECT_EQ(loop.seen.validations.size(), 4u);
  EXPECT_EQ(loop.seen.validations[0].step, 5);
  EXPECT_EQ(loop.seen.rows[9].epoch, 0);
  EXPECT_EQ(loop.seen.rows[10].epoch, 1);
}

// Counts epochs; notes at which step it was asked and how many validations there had been.
class EpochMonitor : public task::Monitor {
 public:
  using Looks = std::vector<std::pair<int64_t, size_t>>;
  EpochMonitor(Looks& looks, const std::vector<LogValues>& validations, int64_t every)
      : looks_(looks), validations_(validations), every_(every) {}
  int64_t update_every_steps() const override { return 0; }
  int64_t plot_every_steps() const override { return 0; }
  int64_t update_every_epochs() const override { return every_; }
  std::map<std::string, double> update(int64_t step) override {
    looks_.emplace_back(step, validations_.size());
    return {};
  }
  std::vector<std::string> plot(int64_t, const std::string&) override { return {}; }

 private:
  Looks& looks_;
  const std::vector<LogValues>& validations_;
  int64_t every_;
};

TEST(Trainer, AMonitorThatCountsEpochsIsAskedAfterTheirValidation) {
  const std::vector<std::string> words = {"task=fragile", "trainer.max_epochs=5", "trainer.limit_train_batches=4",
                                          "trainer.num_sanity_val_steps=0"};
  EpochMonitor::Looks looks;
  testing::Collected watching;  // there before the loop, which makes the monitor
  testing::fragile().make_monitor = [&] { return std::make_unique<EpochMonitor>(looks, watching.validations, 2); };
  Loop watched(words);
  watched.trainer->attach(nullptr, &watching);
  watched.trainer->fit();
  testing::fragile() = {};
  EXPECT_EQ(looks, (EpochMonitor::Looks{{8, 2}, {16, 4}}));
  // What it looks at changes nothing of the training.
  Loop plain(words);
  plain.trainer->fit();
  EXPECT_TRUE(bit_equal(plain.weights(), watched.weights()));
}

TEST(Trainer, ValidationWithTheAverageLeavesTheLiveWeightsAlone) {
  Loop with({"exp_manager.ema.enable=true", "exp_manager.ema.decay=0.5", "trainer.max_steps=40",
             "trainer.val_check_interval=3"}),
      without({"trainer.max_steps=40", "trainer.val_check_interval=3"});
  with.trainer->fit();
  without.trainer->fit();
  EXPECT_TRUE(bit_equal(with.weights(), without.weights()));
  EXPECT_NE(with.seen.validations.back().metrics.at("val_loss"),
            without.seen.validations.back().metrics.at("val_loss"));
}

TEST(Trainer, StopsEarly) {
  Loop loop({"trainer.max_epochs=100", "exp_manager.create_early_stopping_callback=true",
             "exp_manager.early_stopping_callback_params.patience=2",
             "exp_manager.early_stopping_callback_params.min_delta=10"});
  const FitResult result = loop.trainer->fit();
  EXPECT_EQ(loop.seen.validations.size(), 3u);
  EXPECT_THAT(result.early_stop, ::testing::HasSubstr("val_loss"));
  Loop wrong({"exp_manager.create_early_stopping_callback=true",
              "exp_manager.early_stopping_callback_params.monitor=val_accuracy"});
  EXPECT_THROW(wrong.trainer->fit(), ConfigError);
}

TEST(Trainer, ASignalEndsItAtAStepBoundary) {
  Loop loop({"trainer.accumulate_grad_batches=4", "trainer.max_steps=1000"});
  loop.trainer->run_steps(2);
  const auto before = loop.weights();
  StopFlag::request(SIGTERM);
  const FitResult result = loop.trainer->fit();
  EXPECT_EQ(result.stop_signal, SIGTERM);
  EXPECT_EQ(result.steps, 2);
  EXPECT_TRUE(bit_equal(before, loop.weights()));
  StopFlag::clear();
}

TEST(SignalScope, AnInnerScopeKeepsARequestAndIgnoredHangUpsStayIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const SignalScope outer;
    std::raise(SIGHUP);
    EXPECT_FALSE(StopFlag::requested());
    for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
      StopFlag::clear();
      std::raise(number);
      EXPECT_EQ(StopFlag::signal(), number);
    }
    {
      const SignalScope inner;
      EXPECT_EQ(StopFlag::signal(), SIGXCPU);
      EXPECT_THROW(stop_before_start(), PreemptedError);
    }
    std::raise(SIGUSR2);
    EXPECT_EQ(StopFlag::signal(), SIGUSR2) << "the inner scope's end takes no handler away";
  }
  std::signal(SIGHUP, SIG_DFL);
  {
    const SignalScope scope;
    EXPECT_FALSE(StopFlag::requested());
    std::raise(SIGHUP);
    EXPECT_EQ(signal_text(StopFlag::signal()), "SIGHUP");
  }
  StopFlag::clear();
}

TEST(Trainer, WordsForTasksThatCannotBeLearnedFrom) {
  const auto failure = [](const std::vector<std::string>& overrides) -> std::string {
    try {
      Loop loop(overrides);
      loop.trainer->run_steps(150);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  testing::fragile() = {};
  testing::fragile().detached = true;
  EXPECT_THAT(failure({"task=fragile"}), ::testing::HasSubstr("needs no gradient"));
  testing::fragile() = {};
  testing::fragile().zero_weight = true;
  EXPECT_THAT(failure({"task=fragile"}), ::testing::HasSubstr("nothing to learn from"));
  testing::fragile() = {};
  testing::fragile().wrong_shape = true;
  EXPECT_THAT(failure({"task=fragile"}), ::testing::HasSubstr("scalar"));
  testing::fragile() = {};
  EXPECT_THAT(failure({"trainer.limit_train_batches=0"}), ::testing::HasSubstr("0 steps"));
}

TEST(LogWindow, MeansAreWeightedAndRatesCountWallTime) {
  LogWindow window;
  LogWindow::Now begin;
  begin.now_ns = 1'000'000'000;
  window.reset(begin);
  StepVerdict small, large;
  small.value_sum = 1.0;
  small.weight = 1;
  small.samples = 2;
  small.metric_sums["m"] = 10;
  large.value_sum = 12.0;
  large.weight = 3;
  large.samples = 6;
  large.metric_sums["m"] = 6;
  large.items = 30;
  large.padded_items = 40;
  small.committed = large.committed = true;
  window.add(small);
  window.add(large);
  large.committed = false;  // skipped: counts samples, not loss
  window.add(large);
  measure::PhaseTimes phases{};
  phases[static_cast<size_t>(measure::Phase::Wait)] = 500'000'000;
  window.add_phases(phases);
  LogWindow::Now now;
  now.now_ns = 3'000'000'000;
  now.process_cpu_ns = 3'000'000'000;
  const auto values = window.values(now);
  EXPECT_DOUBLE_EQ(values.at("loss"), (1.0 + 12.0) / 4);
  EXPECT_DOUBLE_EQ(values.at("m"), (10.0 + 6.0) / 4);
  EXPECT_DOUBLE_EQ(values.at("samples_per_second"), 7.0);
  EXPECT_DOUBLE_EQ(values.at("steps_per_second"), 1.5);
  EXPECT_DOUBLE_EQ(values.at("data_wait_share"), 0.25);
  EXPECT_DOUBLE_EQ(values.at("padding_share"), 0.25);
  EXPECT_DOUBLE_EQ(values.at("cores_used"), 1.5);
  // In another process: the means go on, the rates count its own steps and time only.
  LogWindow resumed;
  resumed.restore(window.sums());
  resumed.start_clock(begin);
  resumed.add(small);
  const auto later = resumed.values(now);
  EXPECT_DOUBLE_EQ(later.at("loss"), (1.0 + 12.0 + 1.0) / 5);
  EXPECT_DOUBLE_EQ(later.at("samples_per_second"), 1.0);
  EXPECT_DOUBLE_EQ(later.at("steps_per_second"), 0.5);
}

TEST(Trainer, LogsTheModelsArithmeticAgainstTheMachines) {
  Loop loop;
  loop.trainer->run_steps(10);
  const auto& metrics = loop.seen.logs.back().metrics;
  const double per_sample = metrics.at("flops_share") * 100e9 / metrics.at("samples_per_second");  // of 100 GFLOP/s
  EXPECT_GE(per_sample, loop.task->flops_per_sample(1.0));
  EXPECT_LE(per_sample, loop.task->flops_per_sample(16.0));
  LoopSettings unknown = make_loop_settings(*loop.job, *loop.task, *loop.train);
  unknown.fp32_gflops = 0;
  testing::Collected seen;
  Trainer trainer(LoopParts{*loop.task, *loop.train, nullptr, nullptr, &seen, nullptr}, unknown);
  trainer.run_steps(10);
  EXPECT_FALSE(seen.logs.back().metrics.contains("flops_share"));
}

}  // namespace
}  // namespace redline::train
