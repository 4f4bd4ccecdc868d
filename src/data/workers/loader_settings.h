// What shapes the work of a loader's threads; one struct for maker, queue and loader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "data/plan/step_split.h"
#include "data/workers/bad_samples.h"

namespace redline::data {

struct LoaderSettings {
  SplitSettings split;
  int num_workers = 0;           // 0: chores run in the consumer's thread
  int64_t prefetch_batches = 2;  // micro-batches between the consumer and the furthest worker
  int64_t max_buffer_bytes = INT64_MAX;
  bool persistent_workers = true;
  // Work on the next epoch's first batches while the current one ends. Off for validation, which starts again at epoch
  // 0.
  bool continuous = true;
  std::function<void()> on_worker_start;  // in each worker thread, before its first chore
  std::filesystem::path bad_samples_file;
  BadSampleLimits bad_limits;
  // Set by the loader: whole micro-batches are read at once, and steps are joined to stretches of so many rows.
  bool whole_batches = false;
  int64_t stretch_rows = 1;
};

}  // namespace redline::data
