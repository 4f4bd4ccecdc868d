// The data engine as train sees it: batches in plan order, with a position of a few integers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/plan/plan.h"
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
  int64_t queue_batches = 0, queue_bytes = 0;  // made and not yet taken
};

class Loader {
 public:
  virtual ~Loader() = default;
  // Next micro-batch in plan order; nullopt once at the end of the epoch, after which the next epoch begins. Rethrows
  // what a worker threw, with the sample's name, again and again until a seek. Every rank gets the same number of
  // micro-batches per step; when a step has too few samples for that, some have no rows and no fields. Single consumer.
  virtual std::optional<Batch> next() = 0;
  // Starts at a step of an epoch (0 <= step <= steps); in-flight work for other positions is dropped. A seek to where
  // the loader is anyway costs nothing and keeps what was made ahead.
  virtual void seek(int64_t epoch, int64_t step) = 0;
  virtual Position position() const = 0;        // of the next step to be delivered whole
  virtual int64_t steps_per_epoch() const = 0;  // optimiser steps of the current epoch on every rank
  virtual LoaderStats stats() const = 0;        // consumer's thread
  virtual FilterReport filtered() const = 0;
  // Of a batch's sample_ids: file, tar member or row, as the user knows it.
  virtual std::string sample_name(int64_t id) const = 0;
};

}  // namespace redline::data
