#include "tune/search/companions.h"

#include <gtest/gtest.h>

namespace redline::tune {
namespace {

JobView make_job() {
  JobView job;
  job.batch_size = job.micro_batch_size = 2;
  job.accumulate = 8;
  job.max_steps = 400;
  job.val_check_batches = 800;
  job.warmup_steps = 200;
  job.constant_steps = 40;
  job.save_every_steps = 100;
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
  EXPECT_EQ(larger.at(kSavePath), "25");
  EXPECT_EQ(larger.at("model.optim.scale_lr"), "sqrt");
  EXPECT_EQ(larger.at("model.optim.base_batch_size"), "16");
}

TEST(Companions, WhatCountsBatchesFollowsTheBatch) {
  JobView job = make_job();
  job.limit_train_batches = 400;
  job.save_every_batches = 1000;
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
