// One pass over the validation data without gradients: weighted means of loss and metrics, and the task's whole-set
// metrics.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/precision.h"
#include "data/loader.h"
#include "device/tensor_copy.h"
#include "task/task.h"
#include "train/guards/memory_guard.h"
#include "train/loop/cadence.h"
#include "train/step/agreement.h"

namespace redline::train {

struct ValidationSettings {
  uint64_t seed = 0;
  Precision precision = Precision::Fp32;
  torch::Device device = torch::kCPU;
  CountOrShare limit_batches;
  std::function<bool()> stop;      // asked between batches
  Agreement* agreement = nullptr;  // over several ranks: each adds its share; null: one process
};

struct ValidationResult {
  bool complete = true;  // false: stopped on request, or no batch at all
  int64_t batches = 0, samples = 0;
  std::map<std::string, double> metrics;  // "val_loss", "val_<metric>"
};

// Puts the module into evaluation mode and back. Draws (masking) are keyed by a fixed step, so that validations
// compare. Runs out of memory in smaller pieces as training does; `memory` remembers the size. Throws OutOfMemoryError
// when one sample does not fit.
ValidationResult validate(task::Task& task, data::Loader& loader, const ValidationSettings& settings,
                          MemoryGuard& memory, device::CopyStream* stream = nullptr);

}  // namespace redline::train
