#include "train/compile/package_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/file_ops.h"
#include "device/autocast.h"
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

// A part of its loss asks for full precision, whatever the pass has.
class PartlyFull : public example::CurveTask {
 public:
  using CurveTask::CurveTask;
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override {
    task::PartResult result = CurveTask::compute(in, ctx);
    const device::AutocastScope full(device::DeviceKind::Cpu, Precision::Fp32);
    const torch::Tensor x = in.at("x").reshape({-1, in.at("x").size(2)});
    result.loss.value = result.loss.value + torch::mm(x, module().parameters()[0].t()).square().mean();
    return result;
  }
};

// The loop's backward is without autocast, and what was cast before is no part of a step.
TEST(StepTrace, IsTheSameInTheMiddleOfAMixedForwardPass) {
  PartlyFull task({}, 3);
  const task::Batch batch = task.worst_case_batch(4);
  TraceOptions how;
  how.precision = Precision::Bf16Mixed;
  const TracedStep alone = trace_step(task, batch.tensors, batch.sample_ids, how);
  const device::AutocastScope pass(device::DeviceKind::Cpu, Precision::Bf16Mixed);
  task::Context context(1, 0, /*training=*/true, batch.sample_ids);
  task.loss(batch, context);  // now autocast holds casts of the weights
  const TracedStep within = trace_step(task, batch.tensors, batch.sample_ids, how);
  EXPECT_TRUE(within.program.constants.empty());
  EXPECT_EQ(within.text().dump(), alone.text().dump());
}

// Recording runs beside a step whose earlier pieces have left their gradients.
TEST(StepTrace, LeavesTheGradientsOfTheStepAlone) {
  example::CurveTask task({}, 3);
  const task::Batch batch = task.worst_case_batch(4);
  task.module().parameters()[0].mutable_grad() = torch::full_like(task.module().parameters()[0], 2.0);
  trace_step(task, batch.tensors, batch.sample_ids, {});
  EXPECT_TRUE(task.module().parameters()[0].grad().eq(2.0).all().item<bool>());
  EXPECT_FALSE(task.module().parameters()[1].grad().defined());
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

// It is code that runs as us, and its checksum lies beside it.
TEST(PackageCache, WhatOthersMayWriteIsNotRun) {
  const OwnFolder folder = OwnFolder::temporary("cache-test");
  const PackageCache cache(folder.path());
  const auto keep = [&](const char* name) {
    OwnFolder scratch = cache.scratch();
    write_file_atomic(scratch.path() / PackageCache::kPackage, "bytes of a package");
    return cache.keep(std::move(scratch), name, 1.0);
  };
  std::string problem;
  const fs::path open = keep("a");
  fs::permissions(open.parent_path(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cache.find("a", &problem));
  EXPECT_NE(problem.find("others may write"), std::string::npos) << problem;
  const fs::path again = keep("a");
  problem.clear();
  EXPECT_EQ(cache.find("a", &problem), again);
  EXPECT_EQ(problem, "");
  fs::create_directory_symlink(open.parent_path(), folder.path() / "b");
  EXPECT_FALSE(cache.find("b", &problem));
  EXPECT_NE(problem.find("no folder"), std::string::npos) << problem;
}

// Two that compiled the same: the second takes the first one's, and one that is damaged does not stay in its way.
TEST(PackageCache, TheSecondOfTwoProcessesTakesWhatIsThere) {
  const OwnFolder folder = OwnFolder::temporary("cache-test");
  const PackageCache cache(folder.path());
  OwnFolder first = cache.scratch(), second = cache.scratch(), third = cache.scratch();
  for (const OwnFolder* scratch : {&first, &second, &third})
    write_file_atomic(scratch->path() / PackageCache::kPackage, scratch == &first ? "one" : "another");
  const fs::path kept = cache.keep(std::move(first), "a", 1.0);
  EXPECT_EQ(cache.keep(std::move(second), "a", 2.0), kept);
  EXPECT_EQ(read_file(kept), "one");
  EXPECT_EQ(cache.seconds_of("a"), 1.0);
  std::ofstream(kept, std::ios::app) << "!";
  EXPECT_EQ(read_file(cache.keep(std::move(third), "a", 3.0)), "another");
  cache.drop("a");
  std::string problem;
  EXPECT_FALSE(cache.find("a", &problem));
  EXPECT_EQ(problem, "");
}

}  // namespace
}  // namespace redline::train
