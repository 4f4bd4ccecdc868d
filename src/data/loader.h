// The data engine as train sees it: batches in plan order, with a position of a few integers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/sample.h"
#include "data/source.h"
#include "data/transform.h"
#include "measure/stage_clock.h"

namespace redline::data {

// The whole state: resume needs nothing else and does not depend on workers or ranks.
struct Position {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t step = 0;  // optimiser steps done in this epoch
  uint64_t plan_hash = 0;
  bool operator==(const Position&) const = default;
};

struct LoaderStats {
  measure::StageTotals stages;
  int64_t bad_samples = 0, cache_hits = 0, cache_misses = 0;
  int64_t queue_batches = 0, queue_bytes = 0;
};

class Loader {
 public:
  virtual ~Loader() = default;
  // Next micro-batch in plan order; nullopt at the end of the epoch (then begin_epoch). Rethrows what a worker threw, with the
  // sample's name. Single consumer.
  virtual std::optional<Batch> next() = 0;
  // Starts at a step of an epoch; in-flight work for other positions is dropped.
  virtual void seek(int64_t epoch, int64_t step) = 0;
  virtual Position position() const = 0;        // of the next step to be delivered whole
  virtual int64_t steps_per_epoch() const = 0;  // optimiser steps of the current epoch on every rank
  virtual LoaderStats stats() const = 0;
};

}  // namespace redline::data
