// The six products of one attention head, over copies of its rows that suit them: in the rows' own type (small_gemm.h),
// and of floats rounded to bfloat16 where the processor has the units (panel_gemm_bf16.h). Tiles of queries come row by
// row [count, dim]; scores, weights and their gradients are [count, width] with `width` from row to row.
#pragma once

#include <vector>

#include "models/layers/panel_gemm_bf16.h"
#include "models/layers/simd.h"
#include "models/layers/small_gemm.h"

namespace redline::models {

template <class T>
class PlainProducts {
 public:
  using Number = T;
  static constexpr int64_t kPad = 16;  // scores are made in multiples of so many keys

  PlainProducts(int64_t width, int64_t dim, bool backward)
      : width_(width), dim_(dim), keys_t_(size(width * dim)), values_(size(backward ? 0 : width * dim)) {
    if (!backward) return;
    values_t_.resize(size(width * dim));
    keys_.resize(size(width * dim));
  }

  void set_rows(const T* keys, int64_t key_stride, const T* values, int64_t value_stride, int64_t count) {
    transpose(keys, key_stride, count, keys_t_.data());
    if (values_t_.empty()) {
      copy(values, value_stride, count, values_.data());
    } else {
      transpose(values, value_stride, count, values_t_.data());
      copy(keys, key_stride, count, keys_.data());
    }
  }
  void begin_tile(int64_t, const T*, const T*) {}
  void scores(int64_t count, int64_t padded, const T* queries, T* out) const {
    small_gemm<T, false>(count, padded, dim_, queries, dim_, 1, keys_t_.data(), width_, out, width_);
  }
  void mixed(int64_t count, int64_t seen, int64_t, const T* weights, T* out) const {
    small_gemm<T, false>(count, dim_, seen, weights, width_, 1, values_.data(), dim_, out, dim_);
  }
  void weight_grads(int64_t count, int64_t padded, const T* grad, T* out) const {
    small_gemm<T, false>(count, padded, dim_, grad, dim_, 1, values_t_.data(), width_, out, width_);
  }
  void add_value_grads(int64_t count, int64_t seen, const T* weights, const T* grad, T* out) const {
    small_gemm<T, true>(seen, dim_, count, weights, 1, width_, grad, dim_, out, dim_);
  }
  void add_key_grads(int64_t count, int64_t seen, const T* grad_scores, const T* queries, T* out) const {
    small_gemm<T, true>(seen, dim_, count, grad_scores, 1, width_, queries, dim_, out, dim_);
  }
  void query_grads(int64_t count, int64_t seen, int64_t, const T* grad_scores, T* out) const {
    small_gemm<T, false>(count, dim_, seen, grad_scores, width_, 1, keys_.data(), dim_, out, dim_);
  }

 private:
  static size_t size(int64_t count) { return static_cast<size_t>(count); }
  void copy(const T* from, int64_t stride, int64_t rows, T* to) const {
    for (int64_t n = 0; n < rows; ++n) std::copy_n(from + n * stride, dim_, to + n * dim_);
  }
  // [rows, dim] -> [dim, width], zeros beyond `rows` up to the next multiple of 32 so that whole vectors may be read.
  void transpose(const T* from, int64_t stride, int64_t rows, T* to) const {
    const int64_t padded = simd::round_up(rows, 32);
    for (int64_t d = 0; d < dim_; ++d) {
      T* line = to + d * width_;
      for (int64_t n = 0; n < rows; ++n) line[n] = from[n * stride + d];
      for (int64_t n = rows; n < padded; ++n) line[n] = T(0);
    }
  }

  int64_t width_, dim_;
  std::vector<T> keys_t_, values_, values_t_, keys_;
};

class Bf16Products {
 public:
  using Number = float;
  using Bf16 = bf16_panels::Bf16;
  static constexpr int64_t kPad = 32;  // whole panels

  Bf16Products(int64_t width, int64_t dim, bool backward)
      : width_(width), dim_(dim), keys_t_(size(dim, width)), values_(size(width, dim)) {
    if (!backward) return;
    values_t_.resize(size(dim, width));
    keys_.resize(size(width, dim));
  }

  void set_rows(const float* keys, int64_t key_stride, const float* values, int64_t value_stride, int64_t count) {
    across(keys, key_stride, count, keys_t_);
    if (values_t_.empty()) {
      down(values, value_stride, count, values_);
    } else {
      across(values, value_stride, count, values_t_);
      down(keys, key_stride, count, keys_);
    }
  }
  // Backward only: the tile's queries and gradients as right operands.
  void begin_tile(int64_t count, const float* queries, const float* grad) {
    tile_pairs_ = bf16_panels::pairs(count);
    queries_.resize(size(count, dim_));
    grad_.resize(size(count, dim_));
    const int64_t last = bf16_panels::count(dim_);
    bf16_panels::pack(queries, count, dim_, dim_, 0, last, tile_pairs_, queries_.data());
    bf16_panels::pack(grad, count, dim_, dim_, 0, last, tile_pairs_, grad_.data());
  }
  void scores(int64_t count, int64_t padded, const float* queries, float* out) {
    by_keys(count, padded, queries, keys_t_, out);
  }
  void mixed(int64_t count, int64_t seen, int64_t padded, const float* weights, float* out) {
    by_rows(count, seen, padded, weights, values_, out);
  }
  void weight_grads(int64_t count, int64_t padded, const float* grad, float* out) {
    by_keys(count, padded, grad, values_t_, out);
  }
  void add_value_grads(int64_t count, int64_t seen, const float* weights, const float*, float* out) {
    transposed(count, seen, weights, grad_, out);
  }
  void add_key_grads(int64_t count, int64_t seen, const float* grad_scores, const float*, float* out) {
    transposed(count, seen, grad_scores, queries_, out);
  }
  void query_grads(int64_t count, int64_t seen, int64_t padded, const float* grad_scores, float* out) {
    by_rows(count, seen, padded, grad_scores, keys_, out);
  }

 private:
  static size_t size(int64_t depth, int64_t columns) { return static_cast<size_t>(bf16_panels::size(depth, columns)); }
  void across(const float* rows, int64_t stride, int64_t count, std::vector<Bf16>& to) const {
    bf16_panels::pack_transposed(rows, count, dim_, stride, 0, bf16_panels::count(count), to.data());
  }
  void down(const float* rows, int64_t stride, int64_t count, std::vector<Bf16>& to) {
    rows_pairs_ = bf16_panels::pairs(count);
    bf16_panels::pack(rows, count, dim_, stride, 0, bf16_panels::count(dim_), rows_pairs_, to.data());
  }
  void by_keys(int64_t count, int64_t padded, const float* left, const std::vector<Bf16>& right, float* out) {
    const int64_t line = bf16_panels::line(dim_);
    left_.resize(static_cast<size_t>(count * line));
    bf16_panels::round_rows(left, count, dim_, dim_, left_.data());
    bf16_panels::multiply(count, dim_, {left_.data(), line}, {right.data(), bf16_panels::pairs(dim_), padded}, false,
                          out, width_);
  }
  void by_rows(int64_t count, int64_t seen, int64_t padded, const float* left, const std::vector<Bf16>& right,
               float* out) {
    left_.resize(static_cast<size_t>(count * padded));
    bf16_panels::round_rows(left, count, padded, width_, left_.data());
    bf16_panels::multiply(count, seen, {left_.data(), padded}, {right.data(), rows_pairs_, dim_}, false, out, dim_);
  }
  void transposed(int64_t count, int64_t seen, const float* left, const std::vector<Bf16>& right, float* out) {
    left_.resize(size(count, seen));
    const int64_t groups = bf16_panels::count(seen);
    bf16_panels::pack(left, count, seen, width_, 0, groups, tile_pairs_, left_.data());
    bf16_panels::multiply_transposed(
        {tile_pairs_, {left_.data(), tile_pairs_, seen}, {right.data(), tile_pairs_, dim_}}, true, out, dim_, 0, groups,
        0, bf16_panels::count(dim_));
  }

  int64_t width_, dim_, tile_pairs_ = 0, rows_pairs_ = 0;
  std::vector<Bf16> keys_t_, values_, values_t_, keys_, queries_, grad_, left_;
};

}  // namespace redline::models
