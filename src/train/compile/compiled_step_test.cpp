// Real compilations of the example task (some seconds each), and what happens when there is none to be had.
#include "train/compile/compiled_step.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/own_folder.h"
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
  EXPECT_EQ(loop.seen.count("compile.switch"), 1) << loop.seen.text("compile.refused", "why");
  EXPECT_GT(steps, 10);
}

}  // namespace
}  // namespace redline::train
