// From the loader's batch to the task's: tensors without a copy (workers wrote them in the memory format of the run),
// on the device; and rows of one.
#pragma once

#include "data/sample.h"
#include "device/tensor_copy.h"
#include "task/batch.h"

namespace redline::train {

// `stream` null: stays on the CPU.
task::Batch to_task_batch(const data::Batch& batch, device::CopyStream* stream);

// Rows [begin, begin + count): tensors whose first dimension is the batch (by the schema, else by size) are narrowed,
// others shared. items and padded_items are shared out evenly.
task::Batch narrow_batch(const task::Batch& batch, const task::BatchSchema& schema, int64_t begin, int64_t count);

// What a batch costs in memory, for splitting: padded items when counted, else rows.
inline int64_t batch_cost(const task::Batch& batch) {
  return batch.padded_items > 0 ? batch.padded_items : std::max<int64_t>(1, batch.size());
}

// "17, 4, 9 and 29 more"
std::string sample_ids_text(const std::vector<int64_t>& ids, size_t at_most = 16);

}  // namespace redline::train
