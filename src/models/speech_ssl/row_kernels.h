// Elementwise steps of the Conformer layer over rows of frames: several of them per pass over the data, and nothing
// that backward can make again is kept. `bits` are the keyed draws of a dropout, one 16-bit word per element, kept
// where bits >= threshold; null = no dropout. Biases may be null. Sums are added to what is there.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/layers/norm_rows.h"
#include "task/context.h"

namespace redline::models::speech::rows {

struct Keep {
  const uint16_t* bits;
  uint32_t threshold;
  float scale;
};

// The same draws as task::Context::dropout for [B, T, columns] (or one row of [B, H, T, T]), as raw words in `scratch`.
class Dropout {
 public:
  Dropout() = default;
  Dropout(const task::Context& ctx, double p, std::string_view operation, int64_t time);
  bool on() const { return draw_.active(); }
  // Of rows [begin, end) of the flattened [B * T, columns].
  Keep rows(int64_t begin, int64_t end, int64_t columns, std::vector<uint16_t>& scratch) const;
  // Of elements [first, first + count) of one clip; first must be a multiple of 8.
  Keep run(int64_t clip, uint64_t first, int64_t count, std::vector<uint16_t>& scratch) const;

 private:
  task::DropoutDraw draw_;
  int64_t time_ = 0;
  std::vector<uint64_t> samples_;
};

using models::rows::column_sums;
using models::rows::layer_norm;
using models::rows::layer_norm_backward;

// h += bias, in place; out = drop(h * sigmoid(h)).
void bias_swish_drop(float* h, const float* bias, const Keep& keep, int64_t num_rows, int64_t n, float* out);
// From grad at drop(swish(h)): grad becomes the gradient at h; activation = drop(swish(h)) again.
void swish_drop_backward(float* grad, const float* h, const Keep& keep, int64_t count, float* activation);

// out = r + factor * drop(y + bias).
void residual_drop(const float* r, const float* y, const float* bias, const Keep& keep, float factor, int64_t num_rows,
                   int64_t n, float* out);
// out = factor * drop(grad).
void scaled_drop(const float* grad, const Keep& keep, float factor, int64_t count, float* out);

// u += bias, in place, u is [rows][2n]; out = u_left * sigmoid(u_right).
void bias_glu(float* u, const float* bias, int64_t num_rows, int64_t n, float* out);
void glu(const float* u, int64_t num_rows, int64_t n, float* out);
void glu_backward(const float* grad, const float* u, int64_t num_rows, int64_t n, float* grad_u);

// out = swish(x * scale + shift) per column.
void affine_swish(const float* x, const float* scale, const float* shift, int64_t num_rows, int64_t n, float* out);
// grad (at the output) becomes the gradient at x * scale + shift; activation = swish of it again; adds the columns'
// sums of the gradient and of gradient * (x - mean) * rstd.
void affine_swish_backward(float* grad, const float* x, const float* scale, const float* shift, const float* mean,
                           const float* rstd, int64_t num_rows, int64_t n, float* activation, float* grad_sum,
                           float* grad_x_sum);
// grad = weight_rstd * (grad - mean_grad - (x - mean) * rstd * mean_grad_x), in place: BatchNorm's input gradient.
void batch_norm_backward(float* grad, const float* x, const float* mean, const float* rstd, const float* weight_rstd,
                         const float* mean_grad, const float* mean_grad_x, int64_t num_rows, int64_t n);

// out[c] = bias[c] + sum_k weight[k][c] * in[t - left + k][c] for one frame; in is a clip of `length` frames, zero
// outside.
void depthwise_frame(const float* in, int64_t length, int64_t t, int64_t left, int64_t taps, const float* weight,
                     const float* bias, int64_t n, float* out);
// out[c] = sum_k weight[k][c] * grad[t + left - k][c]; grad has `time` frames.
void depthwise_frame_backward(const float* grad, int64_t time, int64_t t, int64_t left, int64_t taps,
                              const float* weight, int64_t n, float* out);
// weight_sum[k][c] += sum_t grad[t][c] * in[t - left + k][c] for t in [0, time), where in has frames [-frames_before,
// length).
void depthwise_weight_sums(const float* grad, const float* in, int64_t time, int64_t length, int64_t left, int64_t taps,
                           int64_t n, float* weight_sum, int64_t frames_before);

void column_squares(const float* x, const float* mean, int64_t num_rows, int64_t n, float* sum);

// One row of attention: p[j] = softmax over j in [0, count) of (ac[j] + bd[j]) * scale.
void softmax_row(const float* ac, const float* bd, float scale, int64_t count, float* p);
// grad at p becomes the gradient at the scores times scale: p * (grad - sum(grad * p)) * scale.
void softmax_row_backward(float* grad, const float* p, float scale, int64_t count);
void drop_row(const float* x, const Keep& keep, int64_t count, float* out);

}  // namespace redline::models::speech::rows
