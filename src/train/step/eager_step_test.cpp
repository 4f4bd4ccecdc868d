// A step of several pieces against one whole batch, alone and with others that wait for this rank.
#include "train/step/eager_step.h"

#include <gtest/gtest.h>

#include "train/guards/memory_guard.h"
#include "train/step/batches.h"
#include "train/step/step_engine.h"
#include "train/testing/harness.h"

namespace redline::train {
namespace {

using testing::make_job;

// Another rank, as far as this one can see: a reference of its own, sums and decisions of its own.
class Other : public Agreement {
 public:
  bool alone() const override { return false; }
  double reference_weight(double weight, int64_t) override {
    ++asked;
    return std::max(weight, other_weight);
  }
  torch::Tensor reference_weight(const torch::Tensor& weight, int64_t) override { return weight; }
  void agree(StepVerdict& verdict) override {
    ++agreed;
    verdict.stop = verdict.stop || stops;
    verdict.out_of_memory = verdict.out_of_memory || out_of_memory;
    verdict.finite = verdict.finite && finite;
  }
  double other_weight = 64;
  bool stops = false, out_of_memory = false, finite = true;
  int asked = 0, agreed = 0;
};

// A program that notes how it is called.
class Noted : public StepProgram {
 public:
  void begin(const StepPass& pass) override { expected = pass.expected_pieces; }
  void add(const task::Batch& piece, bool last) override {
    rows.push_back(piece.size());
    lasts.push_back(last);
  }
  StepVerdict finish() override { return {}; }
  double weight_so_far() const override { return 1; }
  double divisor(double weight) const override { return weight; }
  void abandon() override { ++abandoned; }
  int64_t expected = 0;
  int abandoned = 0;
  std::vector<int64_t> rows;
  std::vector<bool> lasts;
};

struct Fixture {
  explicit Fixture(const std::vector<std::string>& overrides = {"model.dropout=0"})
      : job(make_job(overrides)), task(job->build_task()) {
    loader = job->build_loader(*task, Job::Part::Train, {});
    batch = to_task_batch(*loader->next(), nullptr);
    task->module().train();
  }
  // Gradients of a step made of these pieces, divided as commit would.
  std::map<std::string, torch::Tensor> gradients(Agreement& agreement, const std::vector<task::Batch>& pieces) {
    task->module().zero_grad(/*set_to_none=*/true);
    EagerStep step(*task, torch::kCPU, clock, agreement);
    step.begin({1, 0, Precision::Fp32, 1.0, static_cast<int64_t>(pieces.size())});
    for (size_t i = 0; i < pieces.size(); ++i) step.add(pieces[i], i + 1 == pieces.size());
    verdict = step.finish();
    std::map<std::string, torch::Tensor> result;
    const double divisor = verdict.weight > 0 ? step.divisor(verdict.weight) : 1.0;
    for (const auto& item : task->module().named_parameters())
      if (item.value().grad().defined()) result[item.key()] = item.value().grad() / divisor;
    return result;
  }
  task::Batch rows(int64_t begin, int64_t count) { return narrow_batch(batch, task->schema(), begin, count); }

  std::unique_ptr<Job> job;
  std::unique_ptr<task::Task> task;
  std::unique_ptr<data::Loader> loader;
  task::Batch batch;
  measure::StepClock clock;
  StepVerdict verdict;
};

TEST(EagerStep, PiecesAddUpToTheWholeBatchWhateverTheReferenceIs) {
  Fixture f;
  Alone alone;
  const auto whole = f.gradients(alone, {f.batch});
  const double loss = f.verdict.loss();
  EXPECT_EQ(f.verdict.samples, 8);
  const std::vector<task::Batch> pieces = {f.rows(0, 3), f.rows(3, 1), f.rows(4, 4)};
  EXPECT_LT(testing::difference(whole, f.gradients(alone, pieces)), 1e-5);
  EXPECT_NEAR(f.verdict.loss(), loss, 1e-6);
  EXPECT_EQ(f.verdict.pieces, 3);
  for (const double weight : {0.5, 64.0, 4096.0}) {
    Other other;
    other.other_weight = weight;
    EXPECT_LT(testing::difference(whole, f.gradients(other, pieces)), 1e-5) << weight;
    EXPECT_EQ(other.asked, 1) << "several ranks agree once a step";
  }
  EXPECT_GT(testing::difference(whole, f.gradients(alone, {f.rows(0, 3)})), 1e-3);  // control: other samples
}

TEST(EagerStep, WithOthersAPieceWithoutWeightOrSamplesTakesPart) {
  testing::fragile() = {};
  testing::fragile().zero_weight = true;
  Fixture nothing({"task=fragile"});
  Alone alone;
  Other other;
  EXPECT_TRUE(nothing.gradients(alone, {nothing.batch}).empty()) << "alone there is nothing to wait for";
  const auto zeros = nothing.gradients(other, {nothing.batch});
  EXPECT_EQ(zeros.size(), nothing.task->module().parameters().size());
  for (const auto& [name, gradient] : zeros) EXPECT_EQ(gradient.abs().max().item<float>(), 0) << name;
  EXPECT_EQ(nothing.verdict.weight, 0);
  testing::fragile() = {};

  Fixture f;
  EXPECT_TRUE(f.gradients(alone, {task::Batch()}).empty());
  const auto stood_in = f.gradients(other, {task::Batch()});
  EXPECT_EQ(stood_in.size(), f.task->module().parameters().size());
  for (const auto& [name, gradient] : stood_in) EXPECT_EQ(gradient.abs().max().item<float>(), 0) << name;
  EXPECT_EQ(f.verdict.samples, 0);
  EXPECT_EQ(f.verdict.weight, 0);
  // Beside real pieces it changes nothing.
  const auto whole = f.gradients(other, {f.batch});
  EXPECT_LT(testing::difference(whole, f.gradients(other, {f.batch, task::Batch()})), 1e-6);
}

struct EngineFixture : Fixture {
  explicit EngineFixture(const std::vector<std::string>& overrides) : Fixture(overrides) { loader->seek(0, 0); }
  StepVerdict attempt(Agreement& agreement, StepProgram& program, const MemoryGuard& memory = {}) {
    Optimizer optimizer(job->optim(), apply_parameter_rules(task->module(), {}, job->optim().rules()));
    StepFeed feed(*loader, nullptr, clock, agreement);
    StepEngine engine({*task, optimizer, nullptr, feed, program, agreement, clock}, {});
    engine.begin_step();
    return engine.attempt({1, 0, Precision::Fp32, 1.0, 1}, memory, [] { return false; });
  }
};

TEST(StepEngine, TheLastPieceIsKnownWhenItIsAdded) {
  EngineFixture f({"trainer.accumulate_grad_batches=3"});
  Alone alone;
  Noted noted;
  f.attempt(alone, noted);
  EXPECT_EQ(noted.rows, (std::vector<int64_t>{8, 8, 8}));
  EXPECT_EQ(noted.lasts, (std::vector<bool>{false, false, true}));
  EXPECT_EQ(noted.expected, 3);
  Noted split;
  MemoryGuard memory;
  memory.restore(1);  // a sample at a time
  f.attempt(alone, split, memory);
  EXPECT_EQ(split.rows, std::vector<int64_t>(24, 1));
  std::vector<bool> only_last(24, false);
  only_last.back() = true;
  EXPECT_EQ(split.lasts, only_last);
  EXPECT_EQ(split.expected, 24);
}

TEST(StepEngine, WhatAnotherRankDecidesHoldsHereToo) {
  EngineFixture f({"model.dropout=0"});
  Other other;
  EagerStep program(*f.task, torch::kCPU, f.clock, other);
  StepVerdict sound = f.attempt(other, program);
  EXPECT_TRUE(sound.finite && !sound.stop && !sound.out_of_memory);
  EXPECT_GT(sound.grad_norm, 0);
  other.finite = false;
  EXPECT_FALSE(f.attempt(other, program).finite);
  other.finite = true;
  other.out_of_memory = true;
  EXPECT_TRUE(f.attempt(other, program).out_of_memory);
  for (const torch::Tensor& parameter : f.task->module().parameters())
    EXPECT_FALSE(parameter.grad().defined()) << "a step given up elsewhere leaves no gradients here";
  other.out_of_memory = false;
  other.stops = true;
  EXPECT_TRUE(f.attempt(other, program).stop);
  EXPECT_EQ(other.agreed, 4);
}

}  // namespace
}  // namespace redline::train
