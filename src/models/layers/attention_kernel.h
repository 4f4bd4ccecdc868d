// Softmax attention of packed sequences on the CPU, forward and backward, one (sequence, head) at a time. A tile of
// queries sees all its keys at once (a few hundred KiB at length 1,000, inside the second-level cache), so no running
// rescale is needed; the weights are never stored: backward makes them again from the saved log-sum-exp.
#pragma once

#include <cstdint>

#include "models/layers/packed_rows.h"
#include "models/layers/row_dropout.h"

namespace redline::models {

struct AttentionShape {
  Rows queries, keys;  // the same object for self-attention; one query row per sequence for pooling
  int64_t num_heads = 1, head_dim = 0;
  bool causal = false;  // a query sees keys up to its own time
  DropoutDraw dropout;
  bool bf16 = false;  // of floats: the products round their operands to bfloat16; softmax and sums stay float
};

// Row n of head h is at data + n * stride + h * head_dim.
template <class T>
struct HeadRows {
  T* data = nullptr;
  int64_t stride = 0;
};

// head_dim must be a multiple of the vector's lanes (8 floats, 4 doubles). `log_sum` is [query rows, heads].
template <class T>
void attention_forward(const AttentionShape& shape, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                       HeadRows<T> out, T* log_sum);
template <class T>
void attention_backward(const AttentionShape& shape, HeadRows<const T> q, HeadRows<const T> k, HeadRows<const T> v,
                        HeadRows<const T> grad_out, const T* log_sum, HeadRows<T> grad_q, HeadRows<T> grad_k,
                        HeadRows<T> grad_v);

}  // namespace redline::models
