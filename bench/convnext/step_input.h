// The models and batches of the ConvNeXt step benches: the guide's small one at 64 x 64, ConvNeXt-T at 224 x 224.
#pragma once

#include <torch/torch.h>

#include "models/convnext/task.h"
#include "task/batch.h"

namespace redline::bench {

inline models::convnext::Options convnext_peer_options(bool tiny, bool fused) {
  models::convnext::Options o;
  o.num_classes = tiny ? 1000 : 10;
  o.image_size = tiny ? 224 : 64;
  if (tiny) {
    o.dims = {96, 192, 384, 768};
    o.depths = {3, 3, 9, 3};
  }
  o.fused_kernels = fused;
  return o;
}

inline task::Batch convnext_batch(const models::convnext::Options& options, int64_t batch_size) {
  task::Batch batch;
  for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
  batch.tensors["images"] =
      torch::randn({batch_size, 3, options.image_size, options.image_size}).contiguous(at::MemoryFormat::ChannelsLast);
  batch.tensors["labels"] = torch::arange(batch_size, torch::kInt64).remainder(options.num_classes);
  return batch;
}

}  // namespace redline::bench
