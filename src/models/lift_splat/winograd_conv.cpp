// Tiles are worked on in blocks whose matrices stay in the shared cache; all threads share a block, first by tiles,
// then by the 36 products, so sums are the same for any number of threads.
#include "models/lift_splat/winograd_conv.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>

#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/panel_gemm_bf16.h"
#include "models/layers/row_kernels.h"
#include "models/lift_splat/winograd_kernels.h"

namespace redline::models::lift_splat::fused {

namespace {

using torch::autograd::variable_list;
using winograd::kPositions;

constexpr int64_t kBlockFloats = 5 << 20;  // of both matrices of a block
constexpr int64_t kFewestTiles = 64;       // below it the weights' transforms cost more than the products save

// Floats between two of the 36 matrices: a line apart, or sizes that are powers of two would all fall into the same
// places of the cache.
int64_t matrix_stride(int64_t rows, int64_t columns) { return rows * columns + winograd::kLanes; }
torch::Tensor matrices(int64_t rows, int64_t columns) {
  return torch::empty({kPositions * matrix_stride(rows, columns)});
}

torch::Tensor map_rows(const torch::Tensor& x_MCHW) { return x_MCHW.permute({0, 2, 3, 1}).contiguous(); }
torch::Tensor tap_rows(const torch::Tensor& weight) {
  return weight.permute({0, 2, 3, 1}).contiguous();
}  // [O, 3, 3, C]

// The 4x4 tiles of maps [M, H, W, .], those at the lower and right edge only partly inside.
struct WinogradTiles {
  explicit WinogradTiles(const torch::Tensor& x_MHWC)
      : pictures(x_MHWC.size(0)),
        height(x_MHWC.size(1)),
        width(x_MHWC.size(2)),
        down((height + 3) / 4),
        across((width + 3) / 4) {}
  int64_t count() const { return pictures * down * across; }
  // Calls work(first tile, tiles) for blocks one after another.
  void blocks(int64_t channels, const std::function<void(int64_t first, int64_t tiles)>& work) const {
    const int64_t most = std::max<int64_t>(64, kBlockFloats / (kPositions * channels));
    const int64_t number = (count() + most - 1) / most;
    for (int64_t b = 0; b < number; ++b) {
      const int64_t first = count() * b / number;
      work(first, count() * (b + 1) / number - first);
    }
  }
  // Pixels of a tile: `side` x `side` of them from `margin` above and left of it; `outside` where the map ends.
  template <class T>
  void pixels(int64_t tile, int64_t side, int64_t margin, T* map, int64_t channels, T* outside, T** to) const {
    const int64_t picture = tile / (down * across), y0 = tile / across % down * 4 - margin,
                  x0 = tile % across * 4 - margin;
    for (int64_t y = y0; y < y0 + side; ++y)
      for (int64_t x = x0; x < x0 + side; ++x)
        *to++ = y < 0 || y >= height || x < 0 || x >= width ? outside
                                                            : map + ((picture * height + y) * width + x) * channels;
  }
  int64_t pictures, height, width, down, across;
};

// [36, tiles, channels] of a block's inputs.
void transform_inputs(const WinogradTiles& tiles, const float* map, int64_t channels, int64_t first, int64_t count,
                      float* to) {
  const std::vector<float> zeros(static_cast<size_t>(channels), 0.0f);
  at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
    const float* pixels[36];
    for (int64_t t = begin; t < end; ++t) {
      tiles.pixels(first + t, 6, 1, map, channels, zeros.data(), pixels);
      winograd::input_tile(pixels, channels, to + t * channels, matrix_stride(count, channels));
    }
  });
}

void transform_outputs(const WinogradTiles& tiles, const float* from, int64_t channels, int64_t first, int64_t count,
                       float* map) {
  at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
    std::vector<float> sink(static_cast<size_t>(channels));
    float* pixels[16];
    for (int64_t t = begin; t < end; ++t) {
      tiles.pixels(first + t, 4, 0, map, channels, sink.data(), pixels);
      winograd::output_tile(from + t * channels, matrix_stride(count, channels), channels, pixels);
    }
  });
}

// 36 matrices [O, C].
torch::Tensor transform_weights(const torch::Tensor& taps, bool rotated) {
  const int64_t out = taps.size(0), in = taps.size(3);
  torch::Tensor result = matrices(out, in);
  const float* from = taps.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, out, 4, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o)
      winograd::weight_taps(from + o * 9 * in, rotated, in, to + o * in, matrix_stride(out, in));
  });
  return result;
}

void for_positions(const std::function<void(int64_t position)>& work) {
  at::parallel_for(0, kPositions, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) work(p);
  });
}

// Convolution of rows [M, H, W, in] with 36 matrices [O, C]: from C to O channels, or back from O to C.
torch::Tensor convolve_tiles(const torch::Tensor& rows, const torch::Tensor& transformed, int64_t o, int64_t c,
                             bool back) {
  const int64_t in = back ? o : c, out = back ? c : o;
  const WinogradTiles tiles(rows);
  torch::Tensor result = torch::empty({tiles.pictures, tiles.height, tiles.width, out});
  const float* from = rows.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  std::vector<GemmOperand> weights;  // made ready once for all blocks
  for (int64_t p = 0; p < kPositions; ++p)
    weights.emplace_back(transformed.narrow(0, p * matrix_stride(o, c), o * c).view({o, c}), torch::kFloat32,
                         back ? GemmUse::kNn : GemmUse::kNt);
  const TileGemm gemm(torch::kFloat32);
  tiles.blocks(in + out, [&](int64_t first, int64_t count) {
    torch::Tensor inputs = matrices(count, in), products = matrices(count, out);
    float *v = inputs.mutable_data_ptr<float>(), *m = products.mutable_data_ptr<float>();
    transform_inputs(tiles, from, in, first, count, v);
    for_positions([&](int64_t p) {
      const float* a = v + p * matrix_stride(count, in);
      float* product = m + p * matrix_stride(count, out);
      const GemmOperand& weight = weights[static_cast<size_t>(p)];
      if (back)
        gemm.nn(count, out, in, a, in, weight, 0.0f, product, out);
      else
        gemm.nt(count, out, in, a, in, weight, 0.0f, product, out);
    });
    transform_outputs(tiles, m, out, first, count, to);
  });
  return result;
}

// [O, 3, 3, C].
torch::Tensor weight_gradient(const torch::Tensor& x, const torch::Tensor& g) {
  const int64_t c = x.size(3), o = g.size(3);
  const WinogradTiles tiles(x);
  torch::Tensor sums = matrices(o, c), result = torch::empty({o, 3, 3, c});
  const float *xp = x.const_data_ptr<float>(), *gp = g.const_data_ptr<float>();
  float* total = sums.mutable_data_ptr<float>();
  tiles.blocks(c + o, [&](int64_t first, int64_t count) {
    torch::Tensor inputs = matrices(count, c), gradients = matrices(count, o);
    float *v = inputs.mutable_data_ptr<float>(), *e = gradients.mutable_data_ptr<float>();
    transform_inputs(tiles, xp, c, first, count, v);
    const std::vector<float> zeros(static_cast<size_t>(o), 0.0f);
    at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
      const float* pixels[16];
      for (int64_t t = begin; t < end; ++t) {
        tiles.pixels(first + t, 4, 0, gp, o, zeros.data(), pixels);
        winograd::output_gradient_tile(pixels, o, e + t * o, matrix_stride(count, o));
      }
    });
    for_positions([&](int64_t p) {
      TileGemm(torch::kFloat32)
          .tn(o, c, count, e + p * matrix_stride(count, o), o, v + p * matrix_stride(count, c), c,
              first == 0 ? 0.0f : 1.0f, total + p * matrix_stride(o, c), c);
    });
  });
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, o, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      winograd::weight_gradient_taps(total + i * c, matrix_stride(o, c), c, to + i * 9 * c);
  });
  return result;
}

enum WinogradInput : size_t { kWinogradX, kWinogradWeight, kWinogradCount };

struct WinogradConvBackward : HandNode {
  KeptRows kept;  // the input [M, H, W, C] where it is rounded, else it is an input of the node
  void release_intermediates() override { kept.reset(); }
  std::string name() const override { return "WinogradConvBackward"; }
  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list out(kWinogradCount);
    if (!grads[0].defined()) return out;
    const torch::Tensor g = map_rows(grads[0].to(torch::kFloat32));
    if (wants(kWinogradX)) {
      const torch::Tensor weight = input(kWinogradWeight);
      out[kWinogradX] =
          convolve_tiles(g, transform_weights(tap_rows(weight), true), weight.size(0), weight.size(1), true)
              .permute({0, 3, 1, 2});
    }
    if (wants(kWinogradWeight))
      out[kWinogradWeight] =
          weight_gradient(kept.defined() ? kept.floats() : map_rows(input(kWinogradX)), g).permute({0, 3, 1, 2});
    return out;
  }
};

}  // namespace

namespace {

bool float_tiles_pay() {
  const torch::ScalarType type = gemm_type();
  return type == torch::kFloat32 || (bf16_products(type) && !bf16_panels::tile_units());
}

}  // namespace

bool winograd_fits(const torch::Tensor& x_MCHW, const torch::Tensor& weight) {
  return on_plain_cpu(x_MCHW) && x_MCHW.scalar_type() == torch::kFloat32 && weight.scalar_type() == torch::kFloat32 &&
         float_tiles_pay() && weight.size(2) == 3 && weight.size(3) == 3 && weight.size(0) % winograd::kLanes == 0 &&
         weight.size(1) % winograd::kLanes == 0 &&
         x_MCHW.size(0) * ((x_MCHW.size(2) + 3) / 4) * ((x_MCHW.size(3) + 3) / 4) >= kFewestTiles;
}

torch::Tensor winograd_conv(const torch::Tensor& x_MCHW, const torch::Tensor& weight) {
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type);
  const auto node = make_node<WinogradConvBackward>({x_MCHW, weight}, /*let_go=*/rounded ? 1 : 0);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = map_rows(x_MCHW);
    if (node && rounded) node->kept = KeptRows(x, type);
    out = convolve_tiles(x, transform_weights(tap_rows(weight), false), weight.size(0), weight.size(1), false)
              .permute({0, 3, 1, 2});
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::lift_splat::fused
