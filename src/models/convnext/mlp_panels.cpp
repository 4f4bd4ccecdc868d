// Tiles of rows are as high as their wide rows fit into the L2 cache. Backward goes over chunks of tiles: all threads
// make a chunk's gradients, then all of them its share of the weight gradients, each thread other panels of the result,
// so sums have one order whatever the number of threads.
#include "models/convnext/mlp_panels.h"

#include <ATen/Parallel.h>

#include "models/convnext/gelu.h"
#include "models/convnext/mlp_tiles.h"
#include "models/layers/panel_gemm.h"

namespace redline::models::convnext::panel_mlp {

namespace {

using panels::kPanel;
using panels::LaneVec;
using panels::Left;
using panels::load;
using panels::store;
using panels::TilePlace;

constexpr int64_t kWideChunkFloats = 1 << 18;  // of a chunk

// Each thread's floats.
class Scratch {
 public:
  explicit Scratch(int64_t floats)
      : floats_((floats + 15) / 16 * 16), all_(torch::empty({at::get_num_threads(), floats_})) {}
  float* local() { return all_.mutable_data_ptr<float>() + at::get_thread_num() * floats_; }

 private:
  int64_t floats_;
  torch::Tensor all_;
};

torch::Tensor transposed_panels(const float* weight, int64_t rows, int64_t columns) {
  torch::Tensor out = torch::empty({panels::floats(columns, rows)});
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(
      0, panels::count(rows), std::max<int64_t>(1, 16384 / (kPanel * columns)),
      [&](int64_t first, int64_t last) { panels::pack_transposed(weight, rows, columns, columns, first, last, to); });
  return out;
}

// `scale` multiplies the rows; null = 1.
torch::Tensor straight_panels(const float* weight, int64_t rows, int64_t columns, const float* scale) {
  torch::Tensor out = torch::empty({panels::floats(rows, columns)});
  float* to = out.mutable_data_ptr<float>();
  at::parallel_for(0, panels::count(columns), std::max<int64_t>(1, 32768 / (kPanel * rows)),
                   [&](int64_t first, int64_t last) {
                     panels::pack(weight, rows, columns, columns, first, last, rows, to);
                     if (scale == nullptr) return;
                     for (int64_t line = first * rows; line < last * rows; ++line)
                       for (int64_t i = 0; i < kPanel; ++i) to[line * kPanel + i] *= scale[line % rows];
                   });
  return out;
}

// Rows of a tile in panels that have more rows: those of the tile begin at `data`.
struct WideRows {
  float* data;
  int64_t panel;  // floats from a panel to the next
  REDLINE_TILE float* at(const TilePlace& place) const {
    return data + place.panel * panel + place.row * kPanel + place.column;
  }
};

template <bool kKeep>
struct BiasGelu {
  const float* bias;
  WideRows hidden, activation;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    typedef LaneVec<kLanes> Vec;
    const float* b = bias + place.panel * kPanel + place.column;
    float* a = activation.at(place);
    float* h = kKeep ? hidden.at(place) : nullptr;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vec shift;
      load(b + v * kLanes, shift);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const Vec x = sums[i][v] + shift;
        if (kKeep) store(x, h + i * kPanel + v * kLanes);
        Vec value;
        gelu_value(GeluPoint<Vec>(x), value);
        store(value, a + i * kPanel + v * kLanes);
      }
    }
  }
};

// From the gradient at the activation: gradient at the pre-activation, its column sums, and the activation again.
struct GeluBackward {
  WideRows hidden, grad, activation;
  float* bias_sum;
  template <int kLanes, int kRows>
  REDLINE_TILE void operator()(const TilePlace& place, const LaneVec<kLanes> (&sums)[kRows][2]) const {
    typedef LaneVec<kLanes> Vec;
    const float* h = hidden.at(place);
    float *g = grad.at(place), *a = activation.at(place);
    float* total = bias_sum + place.panel * kPanel + place.column;
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      Vec sum;
      load(total + v * kLanes, sum);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const int64_t at = i * kPanel + v * kLanes;
        Vec x;
        load(h + at, x);
        const GeluPoint<Vec> p(x);
        Vec value;
        gelu_value(p, value);
        store(value, a + at);
        gelu_slope(p, value);
        value *= sums[i][v];
        store(value, g + at);
        sum += value;
      }
      store(sum, total + v * kLanes);
    }
  }
};

// The product into the wide layer and what is done to its tiles, for the lanes at hand.
template <int kLanes, class Finish>
REDLINE_TILE void widen_of(int64_t rows, int64_t depth, const Left& left, const float* right, int64_t last,
                           const Finish& finish) {
  panels::product<kLanes>(rows, depth, left, right, 0, last, finish);
}
template <class Finish>
REDLINE_WIDE_TARGET void widen_wide(int64_t rows, int64_t depth, const Left& left, const float* right, int64_t last,
                                    const Finish& finish) {
  widen_of<16>(rows, depth, left, right, last, finish);
}
template <class Finish>
void widen_narrow(int64_t rows, int64_t depth, const Left& left, const float* right, int64_t last,
                  const Finish& finish) {
  widen_of<8>(rows, depth, left, right, last, finish);
}
template <class Finish>
void widen(int64_t rows, int64_t depth, const Left& left, const float* right, int64_t width, const Finish& finish) {
  if (panels::wide())
    widen_wide(rows, depth, left, right, panels::count(width), finish);
  else
    widen_narrow(rows, depth, left, right, panels::count(width), finish);
}

}  // namespace

int64_t hidden_floats(int64_t num_rows, int64_t width) { return panels::floats(num_rows, width); }

void forward(const Weights& w, const Forward& job) {
  const torch::Tensor first = transposed_panels(w.weight1, w.width, w.dim),
                      second = transposed_panels(w.weight2, w.dim, w.width);
  const float *panels1 = first.const_data_ptr<float>(), *panels2 = second.const_data_ptr<float>();
  const std::vector<float> bias1 = padded(w.bias1, w.width);
  const int64_t largest = tile_rows(w.width), narrow_floats = panels::floats(largest, w.dim);
  Scratch scratch(2 * narrow_floats + panels::floats(largest, w.width));
  for_tiles(job.num_rows, w.width, [&](int64_t begin, int64_t end) {
    const int64_t n = end - begin;
    float *normed = scratch.local(), *branch = normed + narrow_floats, *activation = branch + narrow_floats;
    float* hat = job.hat + begin * w.dim;
    rows::normalise(hat, n, w.dim, hat, job.rstd + begin);
    rows::affine_to_panels(hat, w.norm_weight, w.norm_bias, n, w.dim, n, normed);
    const WideRows active{activation, n * kPanel};
    if (job.hidden != nullptr)
      widen(n, w.dim, Left::in_panels(normed, n), panels1, w.width,
            BiasGelu<true>{bias1.data(), {job.hidden + begin * kPanel, job.num_rows * kPanel}, active});
    else
      widen(n, w.dim, Left::in_panels(normed, n), panels1, w.width, BiasGelu<false>{bias1.data(), active, active});
    panels::multiply(n, w.dim, w.width, Left::in_panels(activation, n), panels2, false, branch, w.dim);
    rows::residual(job.x + begin * w.dim, branch, w.bias2, w.scale, from_row(job.factors, begin), n, w.dim,
                   job.out + begin * w.dim);
  });
}

torch::Tensor backward(const Weights& w, const Backward& job) {
  // Layer scale is in the weights that the gradient goes back through, so the branch's own gradient serves as it is.
  const torch::Tensor second = straight_panels(w.weight2, w.dim, w.width, w.scale),
                      first = straight_panels(w.weight1, w.width, w.dim, nullptr);
  const float *panels2 = second.const_data_ptr<float>(), *panels1 = first.const_data_ptr<float>();
  const int64_t chunks = std::max<int64_t>(1, (job.num_rows * w.width + kWideChunkFloats - 1) / kWideChunkFloats);
  const int64_t chunk = units((job.num_rows + chunks - 1) / chunks) * kUnit;
  const int64_t lines = chunk + 2 * kUnit;  // of a panel: not a power of two, which would crowd into a few cache sets
  const int64_t narrow_panels = panels::count(w.dim), wide_panels = panels::count(w.width);
  torch::Tensor buffers = torch::empty({2 * (narrow_panels + wide_panels), lines, kPanel});
  float* kept = buffers.mutable_data_ptr<float>();
  float *normed = kept + narrow_panels * lines * kPanel, *wide_grad = normed + narrow_panels * lines * kPanel,
        *activation = wide_grad + wide_panels * lines * kPanel;
  Scratch scratch(panels::floats(tile_rows(w.width), w.dim));
  ColumnSums<float> bias1(wide_panels * kPanel);
  for (int64_t start = 0; start < job.num_rows; start += chunk) {
    const int64_t count = std::min(chunk, job.num_rows - start);
    for_tiles(count, w.width, [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin, row = start + begin, line = begin * kPanel, panel = lines * kPanel;
      const float* hat = job.hat + row * w.dim;
      float* grad = scratch.local();
      rows::kept_to_panels(job.grad + row * w.dim, from_row(job.factors, row), n, w.dim, lines, kept + line,
                           job.norm_sums->local(2));
      widen(n, w.dim, {kept + line, kPanel, panel}, panels2, w.width,
            GeluBackward{{const_cast<float*>(job.hidden) + row * kPanel, job.num_rows * kPanel},
                         {wide_grad + line, panel},
                         {activation + line, panel},
                         bias1.local()});
      panels::multiply(n, w.dim, w.width, {wide_grad + line, kPanel, panel}, panels1, false, grad, w.dim);
      rows::affine_to_panels(hat, w.norm_weight, w.norm_bias, n, w.dim, lines, normed + line);
      rows::norm_backward(grad, hat, job.rstd + row, w.norm_weight, n, w.dim, job.grad_in + row * w.dim,
                          job.norm_sums->local(0), job.norm_sums->local(1));
    });
    const bool add = start > 0;
    const panels::TransposedJob weight1{count, wide_grad, lines, w.width,          normed,
                                        lines, w.dim,     add,   job.grad_weight1, w.dim};
    const panels::TransposedJob weight2{count,  kept, lines, w.dim, activation, lines, w.width, add, job.grad_weight2,
                                        w.width};
    at::parallel_for(0, 2 * wide_panels, 1, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i)
        if (i < wide_panels)
          panels::multiply_transposed(weight1, i, i + 1, 0, narrow_panels);
        else
          panels::multiply_transposed(weight2, 0, narrow_panels, i - wide_panels, i - wide_panels + 1);
    });
  }
  return bias1.total().narrow(0, 0, w.width).contiguous();
}

}  // namespace redline::models::convnext::panel_mlp
