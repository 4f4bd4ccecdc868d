// Rows to one batch: each field's arrays side by side along a new first dimension, padded to the longest.
#pragma once

#include <span>
#include <string>

#include "data/sample.h"
#include "data/transform.h"
#include "data/workers/batch_reader.h"

namespace redline::data {

// The plain heap (large blocks recycled).
ArrayAllocator& heap_arrays();

// Fills fields, items and padded_items; sample_ids and position are the caller's. Without rows the batch has no fields.
// Throws DataError naming the samples when a field is missing or rows do not fit together.
void collate(std::span<const Sample* const> rows, const CollateSpec& spec, ArrayAllocator& allocator, Batch& batch);

// `count` elements of `value`, in the array's type.
void fill_padding(void* begin, size_t count, Dtype dtype, double value);

// Bytes a batch or sample holds (arrays only).
int64_t num_bytes(const Batch& batch);
int64_t num_bytes(const Sample& sample);

}  // namespace redline::data
