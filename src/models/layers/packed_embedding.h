// Embedding rows of a packed batch: table[token] * scale + position[time] + per_sequence[sequence], then dropout, in
// one pass. The table's gradient is summed by column blocks, one thread per block, so it needs no atomics and is
// repeatable.
#pragma once

#include <torch/torch.h>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"

namespace redline::models {

struct EmbeddingInputs {
  torch::Tensor table;         // [V, C]
  torch::Tensor tokens;        // int64 [N], 0 <= token < V (checked)
  torch::Tensor positions;     // [T, C] with T above every time, or undefined; a gradient only for a parameter
  torch::Tensor per_sequence;  // [B, C] or undefined
  double scale = 1.0;
};

torch::Tensor packed_embedding(const EmbeddingInputs& inputs, const Rows& rows, const DropoutDraw& dropout);
torch::Tensor packed_embedding_plain(const EmbeddingInputs& inputs, const Rows& rows, const DropoutDraw& dropout);

// sin on even, cos on odd columns, rates 10000^(-2i/width) (Vaswani et al. 2017); computed in double.
torch::Tensor sinusoid_table(int64_t length, int64_t width);

}  // namespace redline::models
