// Tiles are worked on in blocks whose matrices stay in the shared cache; all threads share a block, first by tiles,
// then by the 36 products, so sums are the same for any number of threads.
#include "models/lift_splat/winograd_conv.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/row_kernels.h"
#include "models/lift_splat/winograd_kernels.h"

namespace redline::models::lift_splat::fused {

namespace {

using torch::autograd::variable_list;
using winograd::kPositions;

constexpr int64_t kBlockFloats = 5 << 20;  // of both matrices of a block
constexpr int64_t kSmallestMap = 4;

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
      winograd::input_tile(pixels, channels, to + t * channels, count * channels);
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
      winograd::output_tile(from + t * channels, count * channels, channels, pixels);
    }
  });
}

// [36, O, C].
torch::Tensor transform_weights(const torch::Tensor& taps, bool rotated) {
  const int64_t out = taps.size(0), in = taps.size(3);
  torch::Tensor result = torch::empty({kPositions, out, in});
  const float* from = taps.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, out, 4, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) winograd::weight_taps(from + o * 9 * in, rotated, in, to + o * in, out * in);
  });
  return result;
}

void for_positions(const std::function<void(int64_t position)>& work) {
  at::parallel_for(0, kPositions, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) work(p);
  });
}

// Convolution of rows [M, H, W, in] with [36, O, C]: from C to O channels, or back from O to C.
torch::Tensor convolve_tiles(const torch::Tensor& rows, const torch::Tensor& transformed, bool back) {
  const int64_t o = transformed.size(1), c = transformed.size(2), in = back ? o : c, out = back ? c : o;
  const WinogradTiles tiles(rows);
  torch::Tensor result = torch::empty({tiles.pictures, tiles.height, tiles.width, out});
  const float *from = rows.const_data_ptr<float>(), *weight = transformed.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  torch::Tensor inputs, products;
  tiles.blocks(in + out, [&](int64_t first, int64_t count) {
    if (!inputs.defined() || inputs.size(1) < count) {
      inputs = torch::empty({kPositions, count, in});
      products = torch::empty({kPositions, count, out});
    }
    float *v = inputs.mutable_data_ptr<float>(), *m = products.mutable_data_ptr<float>();
    transform_inputs(tiles, from, in, first, count, v);
    for_positions([&](int64_t p) {
      if (back)
        float_nn(count, out, in, v + p * count * in, in, weight + p * o * c, out, 0.0f, m + p * count * out, out);
      else
        float_nt(count, out, in, v + p * count * in, in, weight + p * o * c, in, 0.0f, m + p * count * out, out);
    });
    transform_outputs(tiles, m, out, first, count, to);
  });
  return result;
}

// [O, 3, 3, C].
torch::Tensor weight_gradient(const torch::Tensor& x, const torch::Tensor& g) {
  const int64_t c = x.size(3), o = g.size(3);
  const WinogradTiles tiles(x);
  torch::Tensor sums = torch::empty({kPositions, o, c}), result = torch::empty({o, 3, 3, c});
  const float *xp = x.const_data_ptr<float>(), *gp = g.const_data_ptr<float>();
  float* total = sums.mutable_data_ptr<float>();
  torch::Tensor inputs, gradients;
  tiles.blocks(c + o, [&](int64_t first, int64_t count) {
    if (!inputs.defined() || inputs.size(1) < count) {
      inputs = torch::empty({kPositions, count, c});
      gradients = torch::empty({kPositions, count, o});
    }
    float *v = inputs.mutable_data_ptr<float>(), *e = gradients.mutable_data_ptr<float>();
    transform_inputs(tiles, xp, c, first, count, v);
    const std::vector<float> zeros(static_cast<size_t>(o), 0.0f);
    at::parallel_for(0, count, 4, [&](int64_t begin, int64_t end) {
      const float* pixels[16];
      for (int64_t t = begin; t < end; ++t) {
        tiles.pixels(first + t, 4, 0, gp, o, zeros.data(), pixels);
        winograd::output_gradient_tile(pixels, o, e + t * o, count * o);
      }
    });
    for_positions([&](int64_t p) {
      float_tn(o, c, count, e + p * count * o, o, v + p * count * c, c, first == 0 ? 0.0f : 1.0f, total + p * o * c, c);
    });
  });
  float* to = result.mutable_data_ptr<float>();
  at::parallel_for(0, o, 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) winograd::weight_gradient_taps(total + i * c, o * c, c, to + i * 9 * c);
  });
  return result;
}

enum WinogradInput : size_t { kWinogradX, kWinogradWeight, kWinogradCount };

struct WinogradConvBackward : HandNode {
  std::string name() const override { return "WinogradConvBackward"; }
  variable_list apply(variable_list&& grads) override {
    const at::NoGradGuard no_grad;
    variable_list out(kWinogradCount);
    if (!grads[0].defined()) return out;
    const torch::Tensor g = map_rows(grads[0].to(torch::kFloat32));
    if (wants(kWinogradX))
      out[kWinogradX] =
          convolve_tiles(g, transform_weights(tap_rows(input(kWinogradWeight)), true), true).permute({0, 3, 1, 2});
    if (wants(kWinogradWeight))
      out[kWinogradWeight] = weight_gradient(map_rows(input(kWinogradX)), g).permute({0, 3, 1, 2});
    return out;
  }
};

}  // namespace

bool winograd_fits(const torch::Tensor& x_MCHW, const torch::Tensor& weight) {
  return on_plain_cpu(x_MCHW) && x_MCHW.scalar_type() == torch::kFloat32 && weight.scalar_type() == torch::kFloat32 &&
         gemm_type() == torch::kFloat32 && weight.size(2) == 3 && weight.size(3) == 3 &&
         weight.size(0) % winograd::kLanes == 0 && weight.size(1) % winograd::kLanes == 0 && x_MCHW.size(0) > 0 &&
         x_MCHW.size(2) >= kSmallestMap && x_MCHW.size(3) >= kSmallestMap;
}

torch::Tensor winograd_conv(const torch::Tensor& x_MCHW, const torch::Tensor& weight) {
  const auto node = make_node<WinogradConvBackward>({x_MCHW, weight});
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    out = convolve_tiles(map_rows(x_MCHW), transform_weights(tap_rows(weight), false), false).permute({0, 3, 1, 2});
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::lift_splat::fused
