#include "models/lift_splat/enlarged_conv.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <functional>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"
#include "models/layers/simd_clones.h"

namespace redline::models::lift_splat {

EnlargedAxis::EnlargedAxis(int64_t small_size, int64_t factor)
    : small(small_size),
      large(small_size * factor),
      sources(static_cast<size_t>(large)),
      targets(static_cast<size_t>(small)) {
  // In float, as LibTorch places its samples.
  const float step = large > 1 ? static_cast<float>(small - 1) / static_cast<float>(large - 1) : 0.0f;
  const auto add = [&](int64_t shift, int64_t from, int64_t to, float weight) {
    if (weight == 0.0f) return;
    sources[static_cast<size_t>(to)].push_back({static_cast<int32_t>(shift), static_cast<int32_t>(from), weight});
    targets[static_cast<size_t>(from)].push_back({static_cast<int32_t>(shift), static_cast<int32_t>(to), weight});
  };
  for (int64_t to = 0; to < large; ++to)
    for (int64_t shift = 0; shift < 3; ++shift) {
      const int64_t seen = to + shift - 1;
      if (seen < 0 || seen >= large) continue;
      const float place = large == small ? static_cast<float>(seen) : step * static_cast<float>(seen);
      const int64_t low = std::min(static_cast<int64_t>(place), small - 1), high = std::min(low + 1, small - 1);
      const float part = std::clamp(place - static_cast<float>(low), 0.0f, 1.0f);
      add(shift, low, to, 1.0f - part);
      add(shift, high, to, part);
    }
}

namespace fused {

namespace {

using torch::autograd::variable_list;

constexpr int64_t kTapPixels = 256;  // pixels of the small map that are multiplied at once
constexpr int64_t kTapBlock = 2048;  // floats that are summed before the next, so that the sums stay in the L1 cache

// to[i] = base[i] + sum of weight[k] * from[k][i]; base may be null.
REDLINE_SIMD_CLONES void sum_taps(const float* base, const float* const* from, const float* weight, int64_t taps,
                                  int64_t count, float* to) {
  constexpr int64_t kWide = 32;
  int64_t i = 0;
  for (; i + kWide <= count; i += kWide) {
    float sum[kWide];
    for (int64_t j = 0; j < kWide; ++j) sum[j] = base != nullptr ? base[i + j] : 0.0f;
    for (int64_t k = 0; k < taps; ++k) {
      const float* line = from[k] + i;
      const float by = weight[k];
      for (int64_t j = 0; j < kWide; ++j) sum[j] += by * line[j];
    }
    for (int64_t j = 0; j < kWide; ++j) to[i + j] = sum[j];
  }
  for (; i < count; ++i) {
    float sum = base != nullptr ? base[i] : 0.0f;
    for (int64_t k = 0; k < taps; ++k) sum += weight[k] * from[k][i];
    to[i] = sum;
  }
}

// Gathers taps and adds them up.
class TapSum {
 public:
  void clear() {
    from_.clear();
    weight_.clear();
  }
  void add(const float* from, float weight) {
    from_.push_back(from);
    weight_.push_back(weight);
  }
  void write(const float* base, int64_t count, float* to) const {
    sum_taps(base, from_.data(), weight_.data(), static_cast<int64_t>(from_.size()), count, to);
  }
  // The same for long rows, block by block.
  void write_long(const float* base, int64_t count, float* to) {
    for (int64_t i = 0; i < count; i += kTapBlock) {
      write(base == nullptr ? nullptr : base + i, std::min(kTapBlock, count - i), to + i);
      for (const float*& line : from_) line += kTapBlock;
    }
  }

 private:
  std::vector<const float*> from_;
  std::vector<float> weight_;
};

// Sizes of one call. Rows of the small map are counted over all pictures.
struct EnlargedShape {
  EnlargedShape(const torch::Tensor& x_MHWC, int64_t out_channels, int64_t factor)
      : down(x_MHWC.size(1), factor),
        across(x_MHWC.size(2), factor),
        pictures(x_MHWC.size(0)),
        in(x_MHWC.size(3)),
        out(out_channels) {}
  int64_t small_rows() const { return pictures * down.small; }
  // Calls work(first row, end) for stretches of rows of the small map, in parallel.
  void for_small_rows(const std::function<void(int64_t begin, int64_t end)>& work) const {
    const int64_t threads = at::get_num_threads(), total = small_rows();
    const int64_t largest = std::max<int64_t>(1, kTapPixels / across.small);
    int64_t tiles = (total + largest - 1) / largest;
    tiles = std::min(total, (tiles + threads - 1) / threads * threads);
    at::parallel_for(0, tiles, 1, [&](int64_t first, int64_t last) {
      for (int64_t tile = first; tile < last; ++tile) work(total * tile / tiles, total * (tile + 1) / tiles);
    });
  }
  EnlargedAxis down, across;
  int64_t pictures, in, out;
};

torch::Tensor rows_of_map(const torch::Tensor& x_MCHW) {
  return x_MCHW.to(torch::kFloat32).permute({0, 2, 3, 1}).contiguous();
}
// [3, 3, O, C]: a line for each tap and output.
torch::Tensor lines_of_taps(const torch::Tensor& weight) {
  return weight.to(torch::kFloat32).permute({2, 3, 0, 1}).contiguous();
}

enum EnlargedInput : size_t { kEnlargedBase, kEnlargedX, kEnlargedWeight, kEnlargedCount };

struct EnlargedConvBackward : HandNode {
  int64_t factor = 1;
  torch::ScalarType type = torch::kFloat32, x_type = torch::kFloat32, base_type = torch::kFloat32;
  KeptRows kept;  // the input [M, H, W, C] where it is rounded, else it is an input of the node; the base is not needed
  void release_intermediates() override { kept.reset(); }
  std::string name() const override { return "EnlargedConvBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list EnlargedConvBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kEnlargedCount);
  if (!grads[0].defined()) return out;
  const torch::Tensor g = rows_of_map(grads[0]), weight = input(kEnlargedWeight);
  const torch::Tensor x = kept.defined() ? kept.tensor() : rows_of_map(input(kEnlargedX));
  const EnlargedShape s(x, weight.size(0), factor);
  const int64_t wide = s.across.large * s.out, line = 9 * s.out, width = s.across.small;
  const torch::Tensor lines = lines_of_taps(weight).view({line, s.in});
  const GemmOperand operand(lines, type, GemmUse::kNn);
  torch::Tensor gx = torch::empty(x.sizes()), gy = torch::empty({s.small_rows() * width, line});
  const float* gp = g.const_data_ptr<float>();
  float *gxp = gx.mutable_data_ptr<float>(), *gyp = gy.mutable_data_ptr<float>();
  s.for_small_rows([&](int64_t begin, int64_t end) {
    std::vector<float> between(static_cast<size_t>(3 * wide));  // [dy, X, O]
    TapSum taps;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t picture = row / s.down.small;
      const auto& below = s.down.targets[static_cast<size_t>(row % s.down.small)];
      for (int64_t dy = 0; dy < 3; ++dy) {
        taps.clear();
        for (const auto& tap : below)
          if (tap.shift == dy) taps.add(gp + (picture * s.down.large + tap.at) * wide, tap.weight);
        taps.write_long(nullptr, wide, between.data() + dy * wide);
      }
      for (int64_t w = 0; w < width; ++w)
        for (int64_t dy = 0; dy < 3; ++dy)
          for (int64_t dx = 0; dx < 3; ++dx) {
            taps.clear();
            for (const auto& tap : s.across.targets[static_cast<size_t>(w)])
              if (tap.shift == dx) taps.add(between.data() + dy * wide + tap.at * s.out, tap.weight);
            taps.write(nullptr, s.out, gyp + (row * width + w) * line + (dy * 3 + dx) * s.out);
          }
    }
    TileGemm(type).nn((end - begin) * width, s.in, line, gyp + begin * width * line, line, operand, 0.0f,
                      gxp + begin * width * s.in, s.in);
  });
  out[kEnlargedX] = gx.permute({0, 3, 1, 2}).to(x_type);
  if (wants(kEnlargedWeight))
    out[kEnlargedWeight] = parallel_tn(gy, x.view({-1, s.in}), type).view({3, 3, s.out, s.in}).permute({2, 3, 0, 1});
  if (wants(kEnlargedBase)) out[kEnlargedBase] = grads[0].to(base_type);
  return out;
}

}  // namespace

bool enlarged_conv_fits(const torch::Tensor& x_MCHW) {
  return on_plain_cpu(x_MCHW) && x_MCHW.scalar_type() != torch::kFloat64;
}

torch::Tensor enlarged_conv(const torch::Tensor& x_MCHW, const torch::Tensor& weight, int64_t factor,
                            const torch::Tensor& base) {
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type);
  const auto node = make_node<EnlargedConvBackward>({base, x_MCHW, weight}, /*let_go=*/rounded ? 2 : 1);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = rows_of_map(x_MCHW), under = base.defined() ? rows_of_map(base) : torch::Tensor();
    const EnlargedShape s(x, weight.size(0), factor);
    const int64_t wide = s.across.large * s.out, line = 9 * s.out, width = s.across.small;
    const torch::Tensor lines = lines_of_taps(weight).view({line, s.in});
    const GemmOperand operand(lines, type, GemmUse::kNt);
    torch::Tensor between = torch::empty({s.small_rows(), 3, s.across.large, s.out});
    torch::Tensor result = torch::empty({s.pictures, s.down.large, s.across.large, s.out});
    const float *xp = x.const_data_ptr<float>(), *bp = base.defined() ? under.const_data_ptr<float>() : nullptr;
    float *mid = between.mutable_data_ptr<float>(), *to = result.mutable_data_ptr<float>();
    s.for_small_rows([&](int64_t begin, int64_t end) {
      std::vector<float> mixed(static_cast<size_t>((end - begin) * width * line));
      TileGemm(type).nt((end - begin) * width, line, s.in, xp + begin * width * s.in, s.in, operand, 0.0f, mixed.data(),
                        line);
      TapSum taps;
      for (int64_t row = begin; row < end; ++row)
        for (int64_t column = 0; column < s.across.large; ++column)
          for (int64_t dy = 0; dy < 3; ++dy) {
            taps.clear();
            for (const auto& tap : s.across.sources[static_cast<size_t>(column)])
              taps.add(mixed.data() + ((row - begin) * width + tap.at) * line + (dy * 3 + tap.shift) * s.out,
                       tap.weight);
            taps.write(nullptr, s.out, mid + (row * 3 + dy) * wide + column * s.out);
          }
    });
    at::parallel_for(0, s.pictures * s.down.large, 1, [&](int64_t begin, int64_t end) {
      TapSum taps;
      for (int64_t row = begin; row < end; ++row) {
        const int64_t first = row / s.down.large * s.down.small;
        taps.clear();
        for (const auto& tap : s.down.sources[static_cast<size_t>(row % s.down.large)])
          taps.add(mid + ((first + tap.at) * 3 + tap.shift) * wide, tap.weight);
        taps.write_long(bp == nullptr ? nullptr : bp + row * wide, wide, to + row * wide);
      }
    });
    out = result.permute({0, 3, 1, 2});
    if (node) {
      node->factor = factor;
      node->type = type;
      node->x_type = x_MCHW.scalar_type();
      if (base.defined()) node->base_type = base.scalar_type();
      if (rounded) node->kept = KeptRows(x, type);
    }
  }
  attach(out, node);
  return out;
}

}  // namespace fused
}  // namespace redline::models::lift_splat
