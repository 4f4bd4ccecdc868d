// What the fused parts of a Conformer layer share: rows of a [B, T, D] tensor, and the entry points themselves (the
// dispatch is in fused_parts.cpp).
#pragma once

#include <torch/torch.h>

#include <string>

#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"
#include "models/speech_ssl/conformer.h"

namespace redline::models::speech::fused {

inline constexpr int64_t kRowTile = 128;

// A float tensor as contiguous rows of its last dimension.
struct RowMatrix {
  explicit RowMatrix(const torch::Tensor& t)
      : tensor(t.to(torch::kFloat32).contiguous()), rows(tensor.numel() / tensor.size(-1)), columns(tensor.size(-1)) {}
  const float* row(int64_t i) const { return tensor.const_data_ptr<float>() + i * columns; }
  torch::Tensor tensor;
  int64_t rows, columns;
};

inline float* row(torch::Tensor& matrix, int64_t i, int64_t columns) {
  return matrix.mutable_data_ptr<float>() + i * columns;
}
inline float* row(torch::Tensor& matrix, int64_t i) { return row(matrix, i, matrix.dim() == 1 ? 1 : matrix.size(-1)); }
inline const float* row(const torch::Tensor& matrix, int64_t i) {
  return matrix.const_data_ptr<float>() + i * matrix.size(-1);
}
inline const float* values(const torch::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }

// What the LayerNorm at a part's start leaves for backward: the rows' statistics, and the rows themselves: where
// products run in bfloat16 rounded, else they are the node's first input. Rounded, what lies around a row's mean is
// kept (the sum itself would lose it where the mean is large), so the mean of those rows is 0.
class NormInput {
 public:
  NormInput() = default;
  NormInput(int64_t count, int64_t columns, bool rounded) : mean_(torch::empty({count})), rstd_(torch::empty({count})) {
    if (rounded) centred_ = torch::empty({count, columns}, torch::kBFloat16);
  }
  float* mean(int64_t row) { return mean_.mutable_data_ptr<float>() + row; }
  float* rstd(int64_t row) { return rstd_.mutable_data_ptr<float>() + row; }
  const float* mean(int64_t row) const { return mean_.const_data_ptr<float>() + row; }
  const float* rstd(int64_t row) const { return rstd_.const_data_ptr<float>() + row; }
  // After the norm of rows [begin, end), which lie at x.
  void keep(const float* x, int64_t begin, int64_t end);
  // The node's first input as rows; undefined where it was let go.
  static torch::Tensor source(const torch::Tensor& input) {
    return input.defined() ? input.to(torch::kFloat32).contiguous() : input;
  }
  // Rows [begin, end), in `scratch` when they have to be widened.
  const float* rows(const torch::Tensor& input, int64_t begin, int64_t end, std::vector<float>& scratch) const {
    return centred_.defined() ? KeptRows(centred_).rows(begin, end, scratch) : row(input, begin);
  }
  void reset() {
    for (torch::Tensor* t : {&mean_, &rstd_, &centred_}) t->reset();
  }

 private:
  torch::Tensor mean_, rstd_, centred_;
};

// These sums are added by LibTorch's sum, which takes another order, so gives other bits, than thread by thread when
// there are many threads. Runs made before must stay repeatable.
class ColumnSums : public models::ColumnSums<float> {
 public:
  using models::ColumnSums<float>::ColumnSums;
  torch::Tensor total() const { return parts().sum(0); }
};

torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass);
torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& attention, const torch::Tensor& r,
                             double dropout, double dropout_att, const std::string& place, const EncoderPass& pass);
torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass);

}  // namespace redline::models::speech::fused
