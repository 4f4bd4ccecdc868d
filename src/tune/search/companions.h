// What moves along when a step holds other samples, so that the job keeps its meaning: every option whose row counts
// steps or batches comes after the same samples, and the learning rate follows the batch. Kept apart from the
// switches themselves: a search adds and removes these one by one, and counts that two of them share would be lost.
// Pure.
#pragma once

#include "tune/search/candidates.h"

namespace redline::tune {

inline constexpr const char* kBatchPath = "model.train_ds.batch_size";
inline constexpr const char* kAccumulatePath = "trainer.accumulate_grad_batches";
inline constexpr const char* kValidationPath = "trainer.val_check_interval";
inline constexpr const char* kSavePath = "exp_manager.checkpoint_callback_params.every_n_train_steps";

// What a step is made of under a setting.
struct StepBatch {
  int64_t batch = 1, accumulate = 1;
  int64_t samples() const { return batch * accumulate; }
};
StepBatch step_batch(const JobView& job, const Setting& setting);

// `setting` as a job is run with it. Its own counts (a validation's or checkpoint's interval) are in the reference's
// batches and steps, whatever batch it sets.
Setting with_companions(const JobView& job, const Setting& setting);

// Options that count steps or batches and cannot follow: too few for a whole number of larger ones, or bound to the
// batch as it is. A setting with any is not run.
std::vector<std::string> stuck_companions(const JobView& job, const Setting& setting);

// Options that with_companions would add but the user typed, so that they would stay as they are.
std::vector<std::string> typed_companions(const JobView& job, const Setting& setting);

}  // namespace redline::tune
