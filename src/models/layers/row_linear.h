// Linear layers over packed rows, whose number is another one in every batch. In a lower precision the CPU's products
// are compiled for each shape when it first comes (oneDNN), and ragged batches bring more shapes than it keeps: a small
// Transformer compiled 200 kernels a step and took nearly three times as long (bench/results, bf16_shapes). So in a
// lower precision the rows are filled up with zeros to one of a few counts. Zeros add nothing to sums; float32 is left
// as it is. Where the processor has bfloat16 units the products are our own (gemm_bf16.h), which compile nothing and
// take the rows as they are.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace redline::models {

// The next of sixteen counts per power of two, at least a multiple of sixteen: three per cent more rows on average.
int64_t filled_row_count(int64_t rows);
// [N, C] in `type`; for a lower precision on the CPU [filled_row_count(N), C] with zeros at the end. Without gradient.
torch::Tensor filled_rows(const torch::Tensor& x, torch::ScalarType type);

// What a product of x runs in: autocast's type where it applies.
torch::ScalarType product_type(const torch::Tensor& x);

// at::linear of [N, C]; the result is in the product's type, or float where the products are our own.
torch::Tensor row_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias = {});

}  // namespace redline::models
