// The first validation samples of a job, each as a batch of its own, so that padding never mixes them.
#pragma once

#include <vector>

#include "train/job.h"

namespace redline::train {

// Empty when the job names no validation data.
std::vector<task::Batch> validation_rows(const Job& job, const task::Task& task, int64_t num);

}  // namespace redline::train
