// What ranks decide together, with ranks as threads: verdicts, statistics, sums and padding.
#include "train/ranks/rank_agreement.h"

#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <utility>

#include "train/signals.h"
#include "train/step/eager_step.h"
#include "train/testing/harness.h"
#include "train/testing/two_ranks.h"

namespace redline::train {
namespace {

using testing::run_as_ranks;
using testing::ThreadRank;

TEST(RankAgreement, VerdictsAreThoseOfAll) {
  run_as_ranks(3, [](ThreadRank& self) {
    const auto job = testing::make_job();
    const auto task = job->build_task();
    RankAgreement agreement(self.group, self.watch, {});
    measure::StepClock clock;
    const auto sync = agreement.sync_gradients(*task, clock);
    const double r = self.rank();
    StepVerdict verdict;
    verdict.value_sum = 1.0 + r;
    verdict.weight = 2.0 * r;
    verdict.samples = 5;
    verdict.pieces = self.rank();
    verdict.grad_norm = 10.0 + r;
    if (self.rank() > 0) verdict.metric_sums["absolute_error"] = 3.0;
    agreement.agree(verdict);
    EXPECT_EQ(verdict.value_sum, 6.0);
    EXPECT_EQ(verdict.weight, 6.0);
    EXPECT_EQ(verdict.samples, 15);
    EXPECT_EQ(verdict.pieces, 2);
    EXPECT_EQ(verdict.grad_norm, 10.0) << "rank 0's";
    EXPECT_EQ(verdict.metric_sums.at("absolute_error"), 6.0);
    EXPECT_TRUE(verdict.finite);
    EXPECT_FALSE(verdict.out_of_memory);

    StepVerdict bad;
    bad.finite = self.rank() != 1;
    agreement.agree(bad);
    EXPECT_FALSE(bad.finite) << "one rank is enough";
    if (self.rank() != 1) {
      EXPECT_EQ(bad.problem, "a tensor on rank 1");
    }
    StepVerdict full;
    full.out_of_memory = self.rank() == 2;
    agreement.agree(full);
    EXPECT_TRUE(full.out_of_memory);
    agreement.forget_loop();
  });
}

TEST(RankAgreement, NumbersOfAll) {
  run_as_ranks(2, [](ThreadRank& self) {
    RankAgreement agreement(self.group, self.watch, {});
    const bool first = self.rank() == 0;
    EXPECT_EQ(agreement.reference_weight(first ? 3.0 : 0.0, 2), 8.0) << "a power of two that holds the largest";
    EXPECT_EQ(agreement.reference_weight(0.0, 2), 1.0);
    EXPECT_TRUE(agreement.any(first));
    EXPECT_FALSE(agreement.any(false));
    EXPECT_EQ(agreement.of_first(first ? 0.1 : 7.0), 0.1);
    const std::map<std::string, double> mine{{"a b", first ? 0.1 : 3.0}, {first ? "x" : "y", 1e-300}};
    EXPECT_EQ(agreement.of_first(mine), (std::map<std::string, double>{{"a b", 0.1}, {"x", 1e-300}}));
    // One that saw nothing adds nothing.
    EXPECT_EQ(agreement.sum(first ? std::vector<double>{1.0, 2.0} : std::vector<double>{}),
              (std::vector<double>{1.0, 2.0}));
    EXPECT_EQ(agreement.sum({1.0, first ? 2.0 : 5.0}), (std::vector<double>{2.0, 7.0}));
    EXPECT_EQ(agreement.pieces(self.rank() + 1, true), self.rank() + 1) << "only where layers span ranks";
  });
}

TEST(RankAgreement, TheReferenceFollowsTheStepBefore) {
  for (const bool narrow : {false, true})
    run_as_ranks(2, [narrow](ThreadRank& self) {
      const auto job = testing::make_job();
      const auto task = job->build_task();
      RankAgreementSettings settings;
      settings.narrow_range = narrow;
      RankAgreement agreement(self.group, self.watch, settings);
      measure::StepClock clock;
      const auto sync = agreement.sync_gradients(*task, clock);
      const double mine = self.rank() == 0 ? 3.0 : 100.0;
      EXPECT_EQ(agreement.reference_weight(mine, 1), 128.0) << "the first is agreed on";
      StepVerdict verdict;
      verdict.weight = self.rank() == 0 ? 4.0 : 20.0;
      verdict.samples = 1;
      agreement.agree(verdict);
      EXPECT_EQ(agreement.reference_weight(mine, 1), narrow ? 128.0 : 16.0) << "half of 24, rounded up";
      agreement.forget_loop();
    });
}

TEST(RankAgreement, DamageIsHeardOfInTheNextVerdict) {
  run_as_ranks(3, [](ThreadRank& self) {
    const auto job = testing::make_job();
    const auto task = job->build_task();
    RankAgreement agreement(self.group, self.watch, {});
    measure::StepClock clock;
    const auto sync = agreement.sync_gradients(*task, clock);
    for (const int damaged : {-1, 1, -1}) {
      agreement.tell_damage(self.rank() == damaged);
      StepVerdict verdict;
      verdict.weight = 2.0;
      agreement.agree(verdict);
      EXPECT_EQ(verdict.damaged_before, damaged >= 0);
      EXPECT_EQ(verdict.weight, damaged >= 0 ? 2.0 : 6.0) << "a verdict on damaged weights counts nothing";
    }
    agreement.forget_loop();
  });
}

TEST(RankAgreement, RowsOfAllRanksBelowEachOther) {
  run_as_ranks(3, [](ThreadRank& self) {
    RankAgreement agreement(self.group, self.watch, {});
    // Rank r has r rows: 0, 1 and 2 of them.
    const int64_t rows = self.rank();
    std::vector<torch::Tensor> mine;
    if (rows > 0)
      mine = {torch::full({rows, 2}, 0.5 * static_cast<double>(rows)), torch::full({rows}, rows, torch::kInt64)};
    const std::vector<torch::Tensor> all = agreement.join_rows(mine);
    ASSERT_EQ(all.size(), 2u);
    EXPECT_TRUE(torch::equal(all[0], torch::tensor({{0.5f, 0.5f}, {1.0f, 1.0f}, {1.0f, 1.0f}})));
    EXPECT_TRUE(torch::equal(all[1], torch::tensor({1, 2, 2}, torch::kInt64)));
    EXPECT_TRUE(agreement.join_rows({}).empty());
  });
}

TEST(RankAgreement, StatisticsOfEachRankBecomeTheirMean) {
  run_as_ranks(2, [](ThreadRank& self) {
    const auto job = testing::make_job();
    const auto task = job->build_task();
    RankAgreement agreement(self.group, self.watch, {});
    measure::StepClock clock;
    const auto sync = agreement.sync_gradients(*task, clock);
    const torch::Tensor mean = torch::zeros({2}), variance = torch::ones({2});
    StepVerdict verdict;
    verdict.weight = 1.0;
    verdict.samples = self.rank() == 0 ? 3 : 1;
    // Rank 0: two pieces; rank 1: one, and a stand-in, which is of nobody.
    const auto update = [&](double value, double momentum) {
      verdict.batch_norm.push_back(
          {mean, variance, {}, torch::full({2}, value), torch::full({2}, value + 1.0), momentum});
    };
    if (self.rank() == 0) {
      update(1.0, 0.5);
      update(2.0, 0.5);
    } else {
      update(8.0, 0.5);
      update(99.0, 0.0);
    }
    agreement.agree(verdict);
    ASSERT_EQ(verdict.batch_norm.size(), 1u);
    apply_batch_norm(verdict.batch_norm);
    // Rank 0 would have 1.25, rank 1 4: (3 * 1.25 + 4) / 4.
    EXPECT_FLOAT_EQ(mean[0].item<float>(), 1.9375f);
    EXPECT_FLOAT_EQ(variance[1].item<float>(), 2.9375f);
    agreement.forget_loop();
  });
}

// Out of memory once, on one rank, with a single sample: nothing is left to cut.
class HungryTask : public example::CurveTask {
 public:
  HungryTask(bool hungry, int64_t step) : CurveTask({}, /*seed=*/1), hungry_(hungry), step_(step) {}
  task::Loss loss(const task::Batch& batch, task::Context& ctx) override {
    if (ctx.training() && ctx.step() == step_ && std::exchange(hungry_, false))
      TORCH_CHECK_WITH(OutOfMemoryError, false, "a test's");
    return CurveTask::loss(batch, ctx);
  }

 private:
  bool hungry_;
  int64_t step_;
};

TEST(RankAgreement, CopiesOfTheStateAreGivenBackByAll) {
  StopFlag::clear();
  run_as_ranks(2, [](ThreadRank& self) {
    const auto job = testing::make_job({"model.train_ds.batch_size=1", "trainer.guards.snapshot_every_n_steps=3"});
    HungryTask task(self.rank() == 1, /*step=*/1);
    const auto train = job->build_loader(task, Job::Part::Train, {});
    testing::Collected seen;
    RankAgreement agreement(self.group, self.watch, {});
    Trainer trainer({task, *train, nullptr, nullptr, &seen, nullptr, &agreement},
                    make_loop_settings(*job, task, *train));
    trainer.run_steps(8);  // past the step at which the next copy would have been due
    EXPECT_EQ(trainer.position().step, 8);
    EXPECT_EQ(trainer.position().skipped_steps, 0);
    EXPECT_EQ(seen.count("guard.no_snapshot"), 1) << "rank " << self.rank();
    agreement.forget_loop();
  });
}

TEST(RankAgreement, LayersSpanRanksOnlyInAModelThatHasSome) {
  run_as_ranks(2, [](ThreadRank& self) {
    const auto job = testing::make_job();
    const auto task = job->build_task();
    RankAgreementSettings settings;
    settings.sync_batchnorm = true;
    RankAgreement agreement(self.group, self.watch, settings);
    measure::StepClock clock;
    const auto sync = agreement.sync_gradients(*task, clock);
    EXPECT_EQ(agreement.pieces(self.rank() + 1, true), self.rank() + 1) << "each cuts as it needs to";
    EXPECT_EQ(sync->begin_piece(true), nullptr);
    // A rank too short of memory for its first piece can go along all the same.
    sync->begin();
    bool between = false;
    sync->keep_company(/*last=*/true, [&] { between = true; });
    EXPECT_TRUE(between);
    agreement.forget_loop();
  });
}

TEST(RankAgreement, ASignalOnOneRankStopsAllAfterTheSameStep) {
  StopFlag::clear();
  run_as_ranks(2, [](ThreadRank& self) {
    RankAgreement agreement(self.group, self.watch, {});
    agreement.wait_for_all();
    if (self.rank() == 1) StopFlag::request(SIGTERM);
    EXPECT_EQ(agreement.stop_signal(), 0) << "not agreed yet";
    agreement.wait_for_all();
    agreement.sum({});
    EXPECT_EQ(agreement.stop_signal(), SIGTERM);
  });
  StopFlag::clear();
}

}  // namespace
}  // namespace redline::train
