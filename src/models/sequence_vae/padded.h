// Sequences with their padding, and what the Transformer computes of them by LibTorch's operators alone: the way of a
// compiled step, whose shapes must be few. Packed and padded drop the same elements and give the same loss; padding
// only costs time.
#pragma once

#include <torch/torch.h>

namespace redline::models::sequence_vae {

struct PaddedSequences {
  torch::Tensor tokens;      // int64 [B, T], 0 past the end; undefined for real values
  torch::Tensor values;      // [B, T, D]: real values
  torch::Tensor embeddings;  // [B, T, D]: precomputed
  torch::Tensor real_BT;     // bool: positions within a sequence
  torch::Tensor last_B;      // int64: the last of them
};

}  // namespace redline::models::sequence_vae
