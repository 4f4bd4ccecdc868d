// The fast path for sources whose rows are tiny: collates rows of a source straight into padded arrays, without a
// Sample per row. A source offers it by also deriving from BatchReader (dynamic_cast once, at set-up); the loader uses
// it when no transform needs single samples. Same result as read() + collate, tested so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/sample.h"
#include "data/source.h"
#include "data/transform.h"
#include "measure/stage_clock.h"

namespace redline::data {

// Where batch memory comes from: the heap, or a pinned pool.
class ArrayAllocator {
 public:
  virtual ~ArrayAllocator() = default;
  virtual Array allocate(Dtype dtype, Shape shape) = 0;
};

struct BadRow {
  size_t position = 0;  // in the span of indices
  BadSample bad;
};

struct BatchPlan {
  CollateSpec collate;
  int64_t max_length = 0;               // rows are cut to this many elements; 0 = never
  ArrayAllocator* allocator = nullptr;  // nullptr = heap
};

class BatchReader {
 public:
  virtual ~BatchReader() = default;
  // True when every field of the spec can be collated here (names and kinds fit).
  virtual bool can_collate(const CollateSpec& spec) const = 0;
  // Fills batch.fields, items and padded_items for rows `indices` (sample_ids and position are the caller's). When rows
  // are bad the batch is left unspecified and they are returned: the caller puts the plan's substitutes in and calls
  // again. Any thread.
  virtual std::vector<BadRow> read_batch(std::span<const int64_t> indices, const BatchPlan& plan, Batch& batch,
                                         measure::StageClock::Slot& slot) const = 0;
};

}  // namespace redline::data
