// Real compilations of the example task (some seconds each), and what happens when there is none to be had.
#include "train/compile/compiled_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "core/own_folder.h"
#include "core/time.h"
#include "measure/faults.h"
#include "train/signals.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;
using testing::Loop;

class Environment {
 public:
  Environment(const char* name, const std::string& value) : name_(name) {
    if (const char* now = std::getenv(name)) before_ = now;
    ::setenv(name, value.c_str(), 1);
  }
  ~Environment() {
    if (before_.empty())
      ::unsetenv(name_);
    else
      ::setenv(name_, before_.c_str(), 1);
  }

 private:
  const char* name_;
  std::string before_;
};

std::vector<double> losses(Loop& loop, int64_t steps) {
  loop.trainer->run_steps(steps);
  std::vector<double> out;
  for (const measure::StepRow& row : loop.seen.rows) out.push_back(row.loss);
  return out;
}

std::vector<std::string> job(const std::string& compile, const std::string& more = "trainer.log_every_n_steps=1") {
  return {"trainer.compile=" + compile, "trainer.intra_op_threads=1", "model.train_ds.batch_size=8", more};
}

class CompiledSteps : public ::testing::Test {
 protected:
  OwnFolder folder_ = OwnFolder::temporary("compile-test");
  Environment cache_{"XDG_CACHE_HOME", folder_.path().string()};
};

// One cache for the tests that do not look at it: a compilation takes half a minute.
class CompiledOnce : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { folder_.emplace(OwnFolder::temporary("compile-test")); }
  static void TearDownTestSuite() { folder_.reset(); }

  static std::optional<OwnFolder> folder_;
  Environment cache_{"XDG_CACHE_HOME", folder_->path().string()};
};
std::optional<OwnFolder> CompiledOnce::folder_;

TEST_F(CompiledSteps, TrainsAsTheEagerStepDoesAndFindsItsPackageAgain) {
  Loop eager(job("false")), compiled(job("true"));
  const std::vector<double> wanted = losses(eager, 20), found = losses(compiled, 20);
  ASSERT_EQ(compiled.seen.count("compile.refused"), 0) << compiled.seen.text("compile.refused", "why");
  EXPECT_EQ(compiled.seen.count("compile.begin"), 1);
  EXPECT_EQ(compiled.seen.count("compile.switch"), 1);
  EXPECT_EQ(compiled.trainer->num_packages(), 1);
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-4 * std::abs(wanted[i])) << i;
  EXPECT_LT(testing::difference(eager.weights(), compiled.weights()), 1e-4);

  Loop again(job("true"));
  EXPECT_EQ(losses(again, 3).size(), 3u);
  EXPECT_EQ(again.seen.count("compile.begin"), 0);  // from the cache
  EXPECT_EQ(again.seen.count("compile.switch"), 1);

  // Changed on disk: made anew, never run.
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
    if (entry.path().extension() == ".pt2") std::ofstream(entry.path(), std::ios::app) << "x";
  Loop anew(job("true"));
  losses(anew, 3);
  EXPECT_EQ(anew.seen.count("compile.begin"), 1);
  EXPECT_EQ(anew.seen.count("compile.switch"), 1);
}

struct Trouble {
  const char *variable, *value, *word;
};

TEST_F(CompiledSteps, WithoutWhatItNeedsTrainingGoesOnEagerly) {
  Loop eager(job("false"));
  const std::vector<double> wanted = losses(eager, 4);
  for (const Trouble& trouble :
       {Trouble{"REDLINE_PYTHON", "/nonexistent/python", "Cannot start"},
        Trouble{"CXX", "/nonexistent/g++", "there is no C++ compiler"}, Trouble{"XDG_CACHE_HOME", "/proc/self", ""}}) {
    const Environment wrong(trouble.variable, trouble.value);
    Loop loop(job("true"));
    const std::vector<double> found = losses(loop, 4);
    EXPECT_EQ(loop.seen.count("compile.refused"), 1) << trouble.variable;
    EXPECT_NE(loop.seen.text("compile.refused", "why").find(trouble.word), std::string::npos)
        << loop.seen.text("compile.refused", "why");
    EXPECT_EQ(found, wanted) << trouble.variable;
  }
}

// Two parameters that are only ever added have one gradient: a compiler may hand it out twice from the same memory.
class TwinsTask : public example::CurveTask {
 public:
  TwinsTask() : CurveTask({}, 3) {
    left_ = module().register_parameter("left", torch::full({8}, 0.5));
    right_ = module().register_parameter("right", torch::full({8}, 0.25));
    idle_ = module().register_parameter("idle", torch::ones({2}));
  }
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override {
    task::PartResult result = CurveTask::compute(in, ctx);
    result.loss.value = result.loss.value + (left_ + right_ - 2.0).square().sum() + idle_.sum();
    return result;
  }

 private:
  torch::Tensor left_, right_, idle_;
};

TEST_F(CompiledOnce, PiecesOfUnequalWeightSumUpAsEagerOnesDo) {
  std::vector<task::Batch> pieces;
  for (const int64_t longest : {12, 5, 3}) {
    pieces.push_back(TwinsTask().worst_case_batch(4));
    pieces.back().tensors["length"].narrow(0, 0, 3).fill_(longest);
  }
  measure::StepClock clock;
  Alone agreement;
  CompileSettings settings;
  settings.mode = CompileMode::Before;
  settings.folder = folder_->path() / "steps";
  std::map<std::string, torch::Tensor> gradients[2];
  for (const bool compiled : {false, true}) {
    TwinsTask task;
    std::vector<std::string> said;
    settings.mode = compiled ? CompileMode::Before : CompileMode::Off;
    CompiledStep program(task, torch::kCPU, clock, agreement, nullptr, settings,
                         [&](const std::string& kind, const measure::FieldList&) { said.push_back(kind); });
    for (int64_t step = 0; step < 3; ++step) {  // proved, and proved no more
      for (torch::Tensor& parameter : task.module().parameters()) parameter.mutable_grad() = torch::Tensor();
      program.begin({1, step, Precision::Fp32, 1024.0, 3});
      for (size_t i = 0; i < pieces.size(); ++i) program.add(pieces[i], i + 1 == pieces.size());
      program.finish();
    }
    EXPECT_EQ(program.num_packages(), compiled ? 1 : 0);
    EXPECT_EQ(std::count(said.begin(), said.end(), "compile.refused"), 0);
    const CompiledStep::Count count = program.take_count();
    EXPECT_EQ(count.compiled, compiled ? 9 : 0);
    EXPECT_EQ(count.all(), count.compiled);
    for (const auto& item : task.module().named_parameters()) gradients[compiled][item.key()] = item.value().grad();
  }
  EXPECT_LT(testing::difference(gradients[0], gradients[1]), 1e-5);
  EXPECT_LT((gradients[1]["left"] - gradients[1]["right"]).abs().max().item<double>(), 1e-6);
}

// A step is compiled from where it was, and further shapes as often as an undisturbed run had seen them.
TEST_F(CompiledOnce, AResumedRunGoesOnBitByBit) {
  const std::vector<std::string> settings = job("true", "trainer.compile_packages=2");
  Loop whole(settings);
  whole.trainer->run_steps(60);
  ASSERT_EQ(whole.seen.count("compile.refused"), 0) << whole.seen.text("compile.refused", "why");
  ASSERT_EQ(whole.seen.count("compile.switch"), 2);
  int64_t second_switch = 0;
  for (const measure::Event& event : whole.seen.events)
    if (event.kind == "compile.switch") second_switch = std::get<int64_t>(*event.find("step"));
  ASSERT_GT(second_switch, 2);
  for (const int64_t cut : {second_switch - 2, second_switch + 3}) {
    Loop first(settings), second(settings);
    first.trainer->run_steps(cut);
    second.trainer->load(first.trainer->state());
    second.trainer->run_steps(60 - cut);
    for (size_t i = 0; i < second.seen.rows.size(); ++i)
      ASSERT_EQ(second.seen.rows[i].loss, whole.seen.rows[static_cast<size_t>(cut) + i].loss) << cut << " " << i;
    EXPECT_TRUE(testing::bit_equal(whole.weights(), second.weights())) << cut;
    EXPECT_EQ(whole.trainer->state().state_json, second.trainer->state().state_json) << cut;
    EXPECT_EQ(second.seen.count("compile.resumed"), cut > second_switch ? 2 : 1);
  }
}

// Numbers that are not finite on the eager way too say nothing against the package.
TEST_F(CompiledOnce, ABadBatchIsNoProofAgainstAPackage) {
  Loop loop(job("true"));
  measure::faults::fail_once("nan.input", 1);
  loop.trainer->run_steps(12);
  EXPECT_FALSE(measure::faults::take("nan.input"));  // it was there
  measure::faults::clear();
  EXPECT_EQ(loop.seen.count("compile.refused"), 0) << loop.seen.text("compile.refused", "why");
  EXPECT_EQ(loop.seen.count("compile.switch"), 1);
}

// A child that fails without a word, with half a package written: nothing of it is kept.
TEST_F(CompiledSteps, HalfAPackageOfAFailedCompilationIsNotKept) {
  const fs::path program = folder_.path() / "python";
  std::ofstream(program) << "#!/bin/sh\necho half > \"$6\"\nexit 1\n";
  fs::permissions(program, fs::perms::owner_all);
  const Environment fails("REDLINE_PYTHON", program.string());
  Loop loop(job("true"));
  EXPECT_EQ(losses(loop, 2).size(), 2u);
  EXPECT_EQ(loop.seen.count("compile.refused"), 1);
  EXPECT_NE(loop.seen.text("compile.refused", "why").find("failed and left no word"), std::string::npos)
      << loop.seen.text("compile.refused", "why");
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path()))
    EXPECT_NE(entry.path().extension(), ".pt2") << entry.path();
}

// Whole by its checksum, and still none that can be loaded: refused, and made anew by the next run.
TEST_F(CompiledSteps, WhatIsNoPackageIsNotKeptEither) {
  const fs::path program = folder_.path() / "python";
  std::ofstream(program) << "#!/bin/sh\necho no package > \"$6\"\n";
  fs::permissions(program, fs::perms::owner_all);
  const Environment lies("REDLINE_PYTHON", program.string());
  for (int run = 0; run < 2; ++run) {
    Loop loop(job("true"));
    EXPECT_EQ(losses(loop, 2).size(), 2u);
    EXPECT_EQ(loop.seen.count("compile.begin"), 1) << run;
    EXPECT_EQ(loop.seen.count("compile.refused"), 1) << run;
  }
}

// Whoever stops a run does not wait for the compiler, and the step that waited is not made another way instead.
TEST_F(CompiledSteps, AStopEndsTheWait) {
  const fs::path program = folder_.path() / "python";
  std::ofstream(program) << "#!/bin/sh\nexec sleep 600\n";
  fs::permissions(program, fs::perms::owner_all);
  const Environment slow("REDLINE_PYTHON", program.string());
  Loop loop(job("true"));
  std::thread asks([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    StopFlag::request(SIGTERM);
  });
  const int64_t begin = now_ns();
  loop.trainer->run_steps(3);
  const double seconds = seconds_between(begin, now_ns());
  asks.join();
  StopFlag::clear();
  EXPECT_LT(seconds, 60);
  EXPECT_EQ(loop.trainer->position().step, 0);
  EXPECT_EQ(loop.seen.count("compile.refused"), 0);
}

TEST_F(CompiledSteps, ATimeLimitEndsACompilation) {
  Loop loop(job("true", "trainer.compile_time_limit=100ms"));
  EXPECT_EQ(losses(loop, 2).size(), 2u);
  EXPECT_EQ(loop.seen.count("compile.refused"), 1);
  EXPECT_NE(loop.seen.text("compile.refused", "why").find("longer than"), std::string::npos);
}

TEST_F(CompiledSteps, InTheBackgroundStepsGoOnMeanwhile) {
  if (std::getenv("REDLINE_SLOW") == nullptr) GTEST_SKIP() << "compiling beside training takes minutes: REDLINE_SLOW=1";
  Loop loop(job("auto"));
  int64_t steps = 0;
  while (loop.seen.count("compile.switch") == 0 && loop.seen.count("compile.refused") == 0 && steps < 200'000) {
    loop.trainer->run_steps(10);
    steps += 10;
  }
  // Whether it is faster is this machine's affair; that steps were made before it was known is not.
  if (loop.seen.count("compile.switch") == 0) {
    EXPECT_NE(loop.seen.text("compile.refused", "why").find("it is slower"), std::string::npos)
        << loop.seen.text("compile.refused", "why");
  }
  EXPECT_GT(steps, 10);
}

}  // namespace
}  // namespace redline::train
