#include "train/compile/package_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/file_ops.h"
#include "train/compile/step_trace.h"
#include "train/testing/example_task.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

TracedStep curve_step(const example::CurveOptions& options = {}, int64_t rows = 4,
                      Precision precision = Precision::Fp32) {
  example::CurveTask task(options, 3);
  const task::Batch batch = task.worst_case_batch(rows);
  TraceOptions how;
  how.precision = precision;
  return trace_step(task, batch.tensors, batch.sample_ids, how);
}

TEST(StepTrace, WeightsAndDrawsAreInputsAndGradientsOutputs) {
  const TracedStep step = curve_step();
  const StepSignature& s = step.signature;
  EXPECT_EQ(s.weights, (std::vector<std::string>{"first.weight", "first.bias", "second.weight", "second.bias"}));
  EXPECT_EQ(s.gradients, s.weights);
  EXPECT_EQ(s.prepared, (std::vector<std::string>{"length", "x", "y"}));
  ASSERT_EQ(s.draws.size(), 1u);
  EXPECT_EQ(s.draws[0].operation, "hidden");
  EXPECT_EQ(s.metrics, std::vector<std::string>{"absolute_error"});
  EXPECT_TRUE(step.program.constants.empty());
  EXPECT_EQ(step.inputs.size(), 4u + 3u + 1u + 1u);
  EXPECT_EQ(step.outputs.size(), 2u + 1u + 4u);
}

TEST(StepTrace, AutocastIsInTheProgram) {
  const std::string plain = curve_step().text().dump();
  const std::string mixed = curve_step({}, 4, Precision::Bf16Mixed).text().dump();
  EXPECT_EQ(plain.find("bfloat16"), std::string::npos);
  EXPECT_NE(mixed.find("bfloat16"), std::string::npos);
}

TEST(PackageName, DependsOnAllThatThePackageDoes) {
  CompileSettings settings;
  settings.machine = "a processor with avx2";
  const std::string name = package_name(curve_step(), settings);
  EXPECT_EQ(name.size(), 64u);
  EXPECT_EQ(package_name(curve_step(), settings), name);  // another run of the same job
  example::CurveOptions wider;
  wider.hidden = 33;
  EXPECT_NE(package_name(curve_step(wider), settings), name);
  example::CurveOptions drier;
  drier.dropout = 0.2;
  EXPECT_NE(package_name(curve_step(drier), settings), name);
  EXPECT_NE(package_name(curve_step({}, 5), settings), name);
  EXPECT_NE(package_name(curve_step({}, 4, Precision::Bf16Mixed), settings), name);
  CompileSettings other = settings;
  other.machine = "a processor with avx512";
  EXPECT_NE(package_name(curve_step(), other), name);
  other = settings;
  other.threads = 2;
  EXPECT_NE(package_name(curve_step(), other), name);
}

TEST(PackageCache, KeepsWhatIsWholeAndDropsWhatIsNot) {
  const OwnFolder folder = OwnFolder::temporary("cache-test");
  const PackageCache cache(folder.path() / "steps");
  std::string problem;
  EXPECT_FALSE(cache.find("a", &problem));
  OwnFolder scratch = cache.scratch();
  write_file_atomic(scratch.path() / PackageCache::kPackage, "bytes of a package");
  const fs::path kept = cache.keep(std::move(scratch), "a", 12.5);
  EXPECT_EQ(cache.find("a", &problem), kept);
  EXPECT_EQ(problem, "");
  EXPECT_EQ(cache.seconds_of("a"), 12.5);
  std::ofstream(kept, std::ios::app) << "!";
  EXPECT_FALSE(cache.find("a", &problem));
  EXPECT_NE(problem.find("damaged"), std::string::npos);
  EXPECT_FALSE(fs::exists(kept));
}

}  // namespace
}  // namespace redline::train
