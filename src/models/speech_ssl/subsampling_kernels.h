// Row kernels of the x8 sub-sampling, channels-last, one sample and one output row at a time.
//
// Why rows: the stem's output (1 -> C channels at half the frame rate) is the largest activation of the model, 134 MB
// for 8 clips of 8 s. Made row by row it stays in the L2 cache and never reaches memory: the depthwise layer reads it
// there, and backward makes it again instead of loading it. Only valid frames exist: row t of a sample is computed for
// t < length, everything past it is zero by definition (NeMo multiplies by a mask before every layer, which gives the
// same values).
//
// Letters: t/f time and frequency of the output, C channels, K = 9 taps ordered (time, frequency). Weights are [K][C].
#pragma once

#include <cstdint>

namespace redline::models::subsampling {

inline constexpr int64_t kTaps = 9;

// out = floor((in + pad_left + 1 - 3) / 2) + 1 for one stride-2 layer with three taps.
inline int64_t strided_length(int64_t length, int64_t pad_left) {
  return (length + pad_left - 2) / 2 + (length + pad_left >= 2 ? 1 : 0);
}

// Three rows of the input image with zeros left and right: rows[kt * stride + pad_left + f]. Rows outside [0, valid)
// are zeros.
void gather_input_rows(const float* image, int64_t valid, int64_t features, int64_t t, int64_t pad_left, float* rows,
                       int64_t stride);

// out[f][C] = relu(bias + sum_k input * weight): the stem.
void stem_row(const float* rows, int64_t stride, int64_t features_out, const float* weight, const float* bias,
              int64_t channels, float* out);

// out[f][C] = bias + sum_k in[2t - pad + kt][2f - pad + kf][C] * weight. in_rows are three rows of [features_in][C],
// null where outside.
void depthwise_row(const float* const in_rows[3], int64_t features_in, int64_t features_out, int64_t pad_left,
                   const float* weight, const float* bias, int64_t channels, const float* zeros, float* out);

// The transposed depthwise layer for one input row t: grad_in[f][C] = sum over the outputs that read it, zero where
// activation is 0 (the ReLU before the layer). grad_rows(kt) = gradient row of output (t + pad - kt) / 2, null where
// there is none; zeros = `channels` zeros.
void depthwise_row_backward_input(const float* const grad_rows[3], int64_t features_in, int64_t features_out,
                                  int64_t pad_left, const float* weight, const float* activation, int64_t channels,
                                  const float* zeros, float* grad_in);

// grad_weight[kt*3+kf][C] += sum_f grad_row[f][C] * in_row[2f - pad + kf][C] for one kt.
void depthwise_row_backward_weight(const float* grad_row, const float* in_row, int64_t kt, int64_t features_in,
                                   int64_t features_out, int64_t pad_left, int64_t channels, float* grad_weight);

// grad_weight[k][C] += sum_f grad[f][C] * input(k, f): the stem's weight gradient from one row.
void stem_row_backward_weight(const float* grad, const float* rows, int64_t stride, int64_t features_out,
                              int64_t channels, float* grad_weight);

// sum[C] += sum over rows of grad[row][C].
void add_column_sums(const float* grad, int64_t rows, int64_t channels, float* sum);

// x[row][C] = relu(x + bias), in place.
void bias_relu(float* x, int64_t rows, const float* bias, int64_t channels);

// grad = 0 where activation == 0.
void relu_backward(float* grad, const float* activation, int64_t count);

}  // namespace redline::models::subsampling
