// Attention over packed sequences as autograd functions. On the CPU the fused kernel (attention_kernel.h) runs; other
// devices, types and head sizes take the plain path, which pads, masks and calls LibTorch.
#pragma once

#include <torch/torch.h>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"

namespace redline::models {

struct AttentionOptions {
  int64_t num_heads = 1;
  bool causal = false;
  DropoutDraw dropout;  // of the weights
};

// qkv [N, 3C] (queries, keys, values side by side, heads inside each) -> [N, C].
torch::Tensor packed_self_attention(const torch::Tensor& qkv, const Rows& rows, const AttentionOptions& options);
// One query per sequence (queries from last_rows): q [B, C], kv [N, 2C] -> [B, C]. Sees all keys.
torch::Tensor packed_last_attention(const torch::Tensor& q, const torch::Tensor& kv, const Rows& queries,
                                    const Rows& keys, const AttentionOptions& options);

// The plain path, for the tests and for what the kernel does not cover.
torch::Tensor packed_attention_plain(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                     const Rows& queries, const Rows& keys, const AttentionOptions& options);

}  // namespace redline::models
