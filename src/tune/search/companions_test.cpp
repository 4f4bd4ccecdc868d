#include "tune/search/companions.h"

#include <gtest/gtest.h>

#include <cmath>

namespace redline::tune {
namespace {

using config::Counts;

JobView make_job() {
  JobView job;
  job.batch_size = job.micro_batch_size = 2;
  job.accumulate = 8;
  job.counted = {{"trainer.max_steps", Counts::Steps, 400, false},
                 {kValidationPath, Counts::Batches, 800, true},
                 {"model.optim.sched.warmup_steps", Counts::Steps, 200, false},
                 {"model.optim.sched.constant_steps", Counts::Steps, 40, false},
                 {"model.kl_schedule.warm_up_steps", Counts::Steps, 80, false},
                 {kSavePath, Counts::Steps, 100, true}};
  return job;
}

Setting batch(const char* rows, const char* accumulate) { return {{kBatchPath, rows}, {kAccumulatePath, accumulate}}; }

TEST(Companions, TheSameStepCutOtherwiseOnlyValidatesAfterOtherBatches) {
  const Setting same = with_companions(make_job(), batch("8", "2"));  // the same 16 samples per step
  EXPECT_EQ(same.at(kValidationPath), "200");
  EXPECT_EQ(same.size(), 3u);
}

TEST(Companions, ALargerStepKeepsTheRunsMeaning) {
  const Setting larger = with_companions(make_job(), batch("8", "8"));
  EXPECT_EQ(larger.at("trainer.max_steps"), "100");
  EXPECT_EQ(larger.at("model.optim.sched.warmup_steps"), "50");
  EXPECT_EQ(larger.at("model.optim.sched.constant_steps"), "10");
  EXPECT_EQ(larger.at("model.kl_schedule.warm_up_steps"), "20");  // a task's own
  EXPECT_EQ(larger.at(kSavePath), "25");
  EXPECT_EQ(larger.at("model.optim.scale_lr"), "sqrt");
  EXPECT_EQ(larger.at("model.optim.base_batch_size"), "16");
}

TEST(Companions, WhatCountsBatchesFollowsTheBatch) {
  JobView job = make_job();
  job.counted.push_back({"trainer.limit_train_batches", Counts::Batches, 400, false});
  job.counted.push_back(
      {"exp_manager.checkpoint_callback_params.every_n_micro_iterations", Counts::Batches, 1000, true});
  const Setting larger = with_companions(job, batch("8", "8"));
  EXPECT_EQ(larger.at("trainer.limit_train_batches"), "100");
  EXPECT_EQ(larger.at("exp_manager.checkpoint_callback_params.every_n_micro_iterations"), "250");
  const Setting more = with_companions(job, batch("2", "32"));  // more batches per step, each as before
  EXPECT_EQ(more.count("trainer.limit_train_batches"), 0u);
}

TEST(Companions, ACadenceOfTheSettingIsInTheReferencesBatches) {
  Setting both = batch("8", "8");
  both[kValidationPath] = "1600";
  EXPECT_EQ(with_companions(make_job(), both).at(kValidationPath), "400");
  EXPECT_EQ(with_companions(make_job(), {{kValidationPath, "1600"}}).at(kValidationPath), "1600");
  both[kSavePath] = "1000";
  EXPECT_EQ(with_companions(make_job(), both).at(kSavePath), "250");
}

TEST(Companions, RatesAndAveragesAreOfTheSameSamples) {
  JobView job = make_job();
  job.min_lr = 1e-4;
  job.ema_decay = 0.99;
  const Setting adam = with_companions(job, batch("8", "8"));
  EXPECT_NEAR(std::stod(adam.at("model.optim.sched.min_lr")), 2e-4, 1e-12);
  EXPECT_NEAR(std::stod(adam.at("exp_manager.ema.decay")), std::pow(0.99, 4), 1e-12);
  job.optimizer = "sgd";
  EXPECT_NEAR(std::stod(with_companions(job, batch("8", "8")).at("model.optim.sched.min_lr")), 4e-4, 1e-12);
}

TEST(Companions, WhatCannotFollowIsNamed) {
  JobView job = make_job();
  EXPECT_TRUE(stuck_companions(job, batch("8", "8")).empty());
  job.counted.push_back({"model.kl_schedule.total_steps", Counts::Steps, 3, false});
  job.counted.push_back({"trainer.log_every_n_steps", Counts::Steps, 3, true});  // may be rounded
  EXPECT_EQ(stuck_companions(job, batch("8", "8")), std::vector<std::string>{"model.kl_schedule.total_steps"});
  EXPECT_TRUE(stuck_companions(job, batch("8", "2")).empty());  // as many steps as before
  job.counted.pop_back();
  job.counted.pop_back();
  job.bound_to_batch = {"model.aggressive.enabled"};
  EXPECT_EQ(stuck_companions(job, batch("8", "8")), job.bound_to_batch);
  EXPECT_TRUE(stuck_companions(job, batch("8", "2")).empty());
}

TEST(Companions, WithoutAnotherBatchNothingMoves) {
  EXPECT_TRUE(with_companions(make_job(), {}).empty());
  EXPECT_EQ(with_companions(make_job(), {{"a", "1"}}), (Setting{{"a", "1"}}));
}

TEST(Companions, WhatTheUserTypedIsNamed) {
  JobView job = make_job();
  job.pinned = {"trainer.max_steps", "seed"};
  EXPECT_EQ(typed_companions(job, batch("8", "8")), std::vector<std::string>{"trainer.max_steps"});
  EXPECT_TRUE(typed_companions(job, batch("8", "2")).empty());  // as many steps as before
}

}  // namespace
}  // namespace redline::tune
