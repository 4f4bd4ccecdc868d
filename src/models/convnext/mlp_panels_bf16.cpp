// As mlp_panels.cpp; here the wide layer's tiles leave the registers rounded, row by row where the next product reads
// them and as pairs of rows where the weight gradients do.
#include "models/convnext/mlp_panels_bf16.h"

#include "device/low_products.h"
#include "models/convnext/gelu_bf16.h"
#include "models/convnext/mlp_tiles.h"
#include "models/layers/packed_weights.h"
#include "models/layers/panel_gemm_bf16.h"

namespace redline::models::convnext::panel_mlp {

namespace {

using bf16_panels::Bf16;
using bf16_panels::kPairLine;
using bf16_panels::WordVec;
using panels::kPanel;
using panels::LaneVec;
using panels::TilePlace;

constexpr int64_t kWideChunk = 1 << 18;  // elements of a chunk's wide rows

const Bf16* words_of(const torch::Tensor& x) { return reinterpret_cast<const Bf16*>(x.const_data_ptr<at::BFloat16>()); }

// Each thread's bytes: rounded elements first, floats after them.
class MixedScratch {
 public:
  MixedScratch(int64_t elements, int64_t floats)
      : elements_((elements + 31) / 32 * 32),
        floats_((floats + 15) / 16 * 16),
        all_(torch::empty({at::get_num_threads(), elements_ / 2 + floats_})) {}
  Bf16* elements() { return reinterpret_cast<Bf16*>(local()); }
  float* floats() { return local() + elements_ / 2; }

 private:
  float* local() { return all_.mutable_data_ptr<float>() + at::get_thread_num() * (elements_ / 2 + floats_); }
  int64_t elements_, floats_;
  torch::Tensor all_;
};

template <bool kKeep>
struct RoundedGelu {
  const float* bias;
  Bf16 *hidden, *activation;  // of the tile's row 0
  int64_t line;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    typedef LaneVec<kLanes> Vec;
    const int64_t first = place.row * line + place.panel * kPanel;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vec shift;
      panels::load(bias + place.panel * kPanel + v * kLanes, shift);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const int64_t at = first + i * line + v * kLanes;
        const Vec x = sums[i][v] + shift;
        WordVec bits;
        if (kKeep) {
          bf16_panels::round_lanes(x, bits);
          bf16_panels::store_rounded(bits, hidden + at);
        }
        Vec value;
        gelu_value(ShortGeluPoint<Vec>(x), value);
        bf16_panels::round_lanes(value, bits);
        bf16_panels::store_rounded(bits, activation + at);
      }
    }
  }
};

// From the gradient at the activation: gradient at the pre-activation, row by row and in pairs, its column sums, and
// the activation again in pairs. Tiles begin at even rows; only the last may have one row.
struct RoundedGeluBackward {
  const Bf16* hidden;
  Bf16* grad_rows;
  int64_t line;
  Bf16 *grad, *activation;  // panels, at the tile's first pair
  int64_t panel;            // elements from a panel to the next
  float* bias_sum;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    typedef LaneVec<kLanes> Vec;
    const int64_t first = place.row * line + place.panel * kPanel;
    const int64_t pair = place.panel * panel + place.row / 2 * kPairLine;
    float* total = bias_sum + place.panel * kPanel;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vec sum;
      panels::load(total + v * kLanes, sum);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; i += 2) {
        WordVec value_bits[2] = {}, grad_bits[2] = {};
#pragma GCC unroll 2
        for (int k = 0; k < (kRows == 1 ? 1 : 2); ++k) {
          const int64_t at = first + (i + k) * line + v * kLanes;
          Vec x, value;
          bf16_panels::load_widened(hidden + at, x);
          const ShortGeluPoint<Vec> p(x);
          gelu_value(p, value);
          bf16_panels::round_lanes(value, value_bits[k]);
          gelu_slope(p, value);
          value *= sums[i + k][v];
          sum += value;
          bf16_panels::round_lanes(value, grad_bits[k]);
          bf16_panels::store_rounded(grad_bits[k], grad_rows + at);
        }
        const int64_t to = pair + i / 2 * kPairLine + v * 2 * kLanes;
        bf16_panels::store_pairs(value_bits[0], value_bits[1], activation + to);
        bf16_panels::store_pairs(grad_bits[0], grad_bits[1], grad + to);
      }
      panels::store(sum, total + v * kLanes);
    }
  }
};

#if REDLINE_BF16_UNITS
template <class Finish>
REDLINE_BF16_TARGET void widen_by_units(int64_t rows, int64_t depth, const bf16_panels::Left& left,
                                        const bf16_panels::Right& right, int64_t last, const Finish& finish) {
  bf16_panels::product(rows, depth, left, right, 0, last, finish);
}
#endif
template <class Finish>
void widen_rounded(int64_t rows, int64_t depth, const bf16_panels::Left& left, const bf16_panels::Right& right,
                   int64_t width, const Finish& finish) {
  const device::low_products::Timed timed;
#if REDLINE_BF16_UNITS
  if (bf16_panels::units()) return widen_by_units(rows, depth, left, right, panels::count(width), finish);
#endif
  bf16_panels::product_plain(rows, depth, left, right, 0, panels::count(width), finish);
}

// Layer scale, where there is one, multiplies the rows: a strip at a time, so that no float copy of the weight exists.
torch::Tensor scaled_panels(const float* weight, int64_t rows, int64_t columns, const float* scale) {
  constexpr int64_t kStrip = 16;  // rows, an even number
  torch::Tensor out = torch::empty({bf16_panels::size(rows, columns)}, torch::kBFloat16);
  Bf16* to = reinterpret_cast<Bf16*>(out.mutable_data_ptr<at::BFloat16>());
  at::parallel_for(0, (rows + kStrip - 1) / kStrip, 1, [&](int64_t first, int64_t last) {
    std::vector<float> strip(static_cast<size_t>(kStrip * columns));
    for (int64_t begin = first * kStrip; begin < std::min(rows, last * kStrip); begin += kStrip) {
      const int64_t count = std::min(kStrip, rows - begin);
      for (int64_t r = 0; r < count; ++r) {
        const float factor = scale == nullptr ? 1.0f : scale[begin + r];
        const float* from = weight + (begin + r) * columns;
        for (int64_t c = 0; c < columns; ++c) strip[static_cast<size_t>(r * columns + c)] = from[c] * factor;
      }
      bf16_panels::pack(strip.data(), count, columns, columns, 0, panels::count(columns), bf16_panels::pairs(rows),
                        to + begin / 2 * kPairLine);
    }
  });
  return out;
}

}  // namespace

int64_t hidden_line(int64_t width) { return panels::count(width) * kPanel; }

void forward(const Weights& w, const Bf16Forward& job) {
  const torch::Tensor first = packed_weight(job.weight1, true), second = packed_weight(job.weight2, true);
  const bf16_panels::Right right1{words_of(first), bf16_panels::pairs(w.dim), w.width},
      right2{words_of(second), bf16_panels::pairs(w.width), w.dim};
  const std::vector<float> bias1 = padded(w.bias1, w.width);
  const int64_t largest = tile_rows(w.width), line = hidden_line(w.width), narrow = bf16_panels::line(w.dim);
  MixedScratch scratch(largest * (narrow + line), largest * w.dim);
  for_tiles(job.num_rows, w.width, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    Bf16 *normed = scratch.elements(), *activation = normed + largest * narrow;
    float* rows = scratch.floats();
    rows::normalise(job.taps_out + begin * w.dim, n, w.dim, rows, job.rstd + begin);
    if (job.hat != nullptr) bf16_panels::round_line(rows, n * w.dim, job.hat + begin * w.dim);
    rows::affine(rows, w.norm_weight, w.norm_bias, n, w.dim, rows);
    bf16_panels::round_rows(rows, n, w.dim, w.dim, normed);
    if (job.hat != nullptr)
      widen_rounded(n, w.dim, {normed, narrow}, right1, w.width,
                    RoundedGelu<true>{bias1.data(), job.hidden + begin * line, activation, line});
    else
      widen_rounded(n, w.dim, {normed, narrow}, right1, w.width,
                    RoundedGelu<false>{bias1.data(), nullptr, activation, line});
    bf16_panels::multiply(n, w.width, {activation, line}, right2, false, rows, w.dim);
    rows::residual(job.x + begin * w.dim, rows, w.bias2, w.scale, from_row(job.factors, begin), n, w.dim,
                   job.out + begin * w.dim);
  });
}

torch::Tensor backward(const Weights& w, const Bf16Backward& job) {
  const torch::Tensor second = scaled_panels(w.weight2, w.dim, w.width, w.scale),
                      first = packed_weight(job.weight1, false);
  const bf16_panels::Right right2{words_of(second), bf16_panels::pairs(w.dim), w.width},
      right1{words_of(first), bf16_panels::pairs(w.width), w.dim};
  const int64_t chunks = std::max<int64_t>(1, (job.num_rows * w.width + kWideChunk - 1) / kWideChunk);
  const int64_t chunk = units((job.num_rows + chunks - 1) / chunks) * kUnit;
  const int64_t lines = chunk / 2 + kUnit;  // pairs of a panel: not a power of two, which would crowd a few cache sets
  const int64_t narrow_panels = panels::count(w.dim), wide_panels = panels::count(w.width), panel = lines * kPairLine;
  torch::Tensor buffers = torch::empty({2 * (narrow_panels + wide_panels) * panel}, torch::kBFloat16);
  Bf16* kept = reinterpret_cast<Bf16*>(buffers.mutable_data_ptr<at::BFloat16>());
  Bf16 *normed = kept + narrow_panels * panel, *wide_grad = normed + narrow_panels * panel,
       *activation = wide_grad + wide_panels * panel;
  const int64_t largest = tile_rows(w.width), line = hidden_line(w.width), narrow = bf16_panels::line(w.dim);
  MixedScratch scratch(largest * (narrow + line), 2 * largest * w.dim);
  ColumnSums<float> bias1(wide_panels * kPanel);
  for (int64_t start = 0; start < job.num_rows; start += chunk) {
    const int64_t count = std::min(chunk, job.num_rows - start);
    for_tiles(count, w.width, [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin, row = start + begin, pair = begin / 2 * kPairLine;
      Bf16 *grad_left = scratch.elements(), *wide_rows = grad_left + largest * narrow;
      float *grad = scratch.floats(), *hat = grad + largest * w.dim;
      rows::residual_backward(job.grad + row * w.dim, nullptr, from_row(job.factors, row), n, w.dim, nullptr, grad,
                              job.norm_sums->local(2));
      bf16_panels::round_rows(grad, n, w.dim, w.dim, grad_left);
      bf16_panels::pack(grad, n, w.dim, w.dim, 0, narrow_panels, lines, kept + pair);
      widen_rounded(n, w.dim, {grad_left, narrow}, right2, w.width,
                    RoundedGeluBackward{job.hidden + row * line, wide_rows, line, wide_grad + pair, activation + pair,
                                        panel, bias1.local()});
      bf16_panels::widen(job.hat + row * w.dim, n * w.dim, hat);
      rows::affine(hat, w.norm_weight, w.norm_bias, n, w.dim, grad);
      bf16_panels::pack(grad, n, w.dim, w.dim, 0, narrow_panels, lines, normed + pair);
      bf16_panels::multiply(n, w.width, {wide_rows, line}, right1, false, grad, w.dim);
      rows::norm_backward(grad, hat, job.rstd + row, w.norm_weight, n, w.dim, job.grad_in + row * w.dim,
                          job.norm_sums->local(0), job.norm_sums->local(1));
    });
    const int64_t pairs = bf16_panels::pairs(count);
    const bool add = start > 0;
    const bf16_panels::TransposedPlaces weight1{pairs, {wide_grad, lines, w.width}, {normed, lines, w.dim}};
    const bf16_panels::TransposedPlaces weight2{pairs, {kept, lines, w.dim}, {activation, lines, w.width}};
    at::parallel_for(0, 2 * wide_panels, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        if (i < wide_panels)
          bf16_panels::multiply_transposed(weight1, add, job.grad_weight1, w.dim, i, i + 1, 0, narrow_panels);
        else
          bf16_panels::multiply_transposed(weight2, add, job.grad_weight2, w.width, 0, narrow_panels, i - wide_panels,
                                           i - wide_panels + 1);
    });
  }
  return bias1.total().narrow(0, 0, w.width).contiguous();
}

}  // namespace redline::models::convnext::panel_mlp
