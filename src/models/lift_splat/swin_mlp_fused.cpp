// The feed-forward part of a block and the merging of patches, each one node over tiles of rows. Kept for backward: the
// input, and of the feed-forward part what goes into GELU. Where products run in bfloat16 of the input only what lies
// around the rows' means is kept, rounded: the rows that the norm saw.
#include <algorithm>
#include <functional>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/norm_rows.h"
#include "models/layers/row_kernels.h"
#include "models/lift_splat/swin.h"
#include "models/lift_splat/swin_fused.h"
#include "models/lift_splat/swin_kernels.h"

namespace redline::models::lift_splat::fused {

bool fits(const torch::Tensor& x_MHWC, int64_t heads) {
  return on_plain_cpu(x_MHWC) && x_MHWC.scalar_type() == torch::kFloat32 && x_MHWC.size(3) / heads % 8 == 0;
}

Kept kept(task::Context& ctx, double chance, const std::string& operation, const torch::Tensor& x_MHWC) {
  const int64_t pictures = x_MHWC.size(0);
  Kept out;
  out.scale.assign(static_cast<size_t>(pictures), 1.0f);
  if (ctx.training() && chance > 0.0) {
    const torch::Tensor draws = ctx.uniform({pictures}, operation).to(torch::kCPU);
    for (int64_t m = 0; m < pictures; ++m)
      out.scale[static_cast<size_t>(m)] = draws.const_data_ptr<float>()[m] >= static_cast<float>(chance)
                                              ? static_cast<float>(1.0 / (1.0 - chance))
                                              : 0.0f;
  }
  for (int64_t m = 0; m < pictures; ++m)
    if (out.scale[static_cast<size_t>(m)] > 0.0f) out.alive.push_back(m);
  return out;
}

namespace {

using torch::autograd::variable_list;

constexpr int64_t kMlpTile = 128;

enum MlpInput : size_t { kMlpX, kMlpNormWeight, kMlpNormBias, kWeight1, kBias1, kWeight2, kBias2, kMlpCount };

// Rows of the pictures that take part, as stretches that are contiguous in x.
struct LiveRows {
  LiveRows(const Kept& which, int64_t rows_of_picture) : kept(which), per_picture(rows_of_picture) {}
  int64_t count() const { return static_cast<int64_t>(kept.alive.size()) * per_picture; }
  // Calls work(first row of x, rows, scale, first row within [begin, end)) for the stretches of live rows [begin, end).
  template <class Work>
  void stretches(int64_t begin, int64_t end, const Work& work) const {
    for (int64_t at = begin; at < end;) {
      const int64_t which = at / per_picture, inside = at % per_picture;
      const int64_t length = std::min(end - at, per_picture - inside);
      const int64_t picture = kept.alive[static_cast<size_t>(which)];
      work(picture * per_picture + inside, length, kept.scale[static_cast<size_t>(picture)], at - begin);
      at += length;
    }
  }
  Kept kept;
  int64_t per_picture;
};

struct MlpBackward : HandNode {
  std::unique_ptr<LiveRows> live;
  torch::ScalarType type = torch::kFloat32;
  KeptRows hidden, centred;
  void release_intermediates() override {
    hidden.reset();
    centred.reset();
  }
  std::string name() const override { return "SwinMlpBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list MlpBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kMlpCount);
  if (!grads[0].defined()) return out;
  const bool rounded = centred.defined();
  const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(),
                      x = rounded ? torch::Tensor() : input(kMlpX).contiguous();
  const torch::Tensor w1 = input(kWeight1).contiguous(), w2 = input(kWeight2).contiguous();
  const torch::Tensor norm_weight = input(kMlpNormWeight), norm_bias = input(kMlpNormBias);
  const GemmOperand operand1(w1, type, GemmUse::kNn), operand2(w2, type, GemmUse::kNn);
  const int64_t c = g.size(3), width = w1.size(0), total = live->count();
  torch::Tensor gx = g.clone(), gy = torch::empty({total, c}), normed = torch::empty({total, c}),
                activation = torch::empty({total, width}), gh = torch::empty({total, width});
  ColumnSums<float> norm_w(c), norm_b(c), bias1(width), bias2(c);
  const float *gp = g.const_data_ptr<float>(), *xp = rounded ? nullptr : x.const_data_ptr<float>();
  float *gxp = gx.mutable_data_ptr<float>(), *gyp = gy.mutable_data_ptr<float>(),
        *normedp = normed.mutable_data_ptr<float>(), *activationp = activation.mutable_data_ptr<float>(),
        *ghp = gh.mutable_data_ptr<float>();
  for_row_tiles(total, kMlpTile, [&](int64_t begin, int64_t end) {
    const TileGemm gemm(type);
    const int64_t count = end - begin;
    std::vector<float> gn(static_cast<size_t>(count * c)), statistics(static_cast<size_t>(2 * count)), widened,
        widened_x;
    const float* tile_x = rounded ? centred.rows(begin, end, widened_x) : nullptr;
    float *tile_gy = gyp + begin * c, *tile_gh = ghp + begin * width;
    live->stretches(begin, end, [&](int64_t from, int64_t length, float scale, int64_t at) {
      for (int64_t i = 0; i < length * c; ++i) tile_gy[at * c + i] = scale * gp[from * c + i];
    });
    rows::column_sums(tile_gy, count, c, bias2.local());
    gemm.nn(count, width, c, tile_gy, c, operand2, 0.0f, tile_gh, width);
    kernels::gelu_backward(tile_gh, hidden.rows(begin, end, widened), count * width, activationp + begin * width);
    rows::column_sums(tile_gh, count, width, bias1.local());
    gemm.nn(count, c, width, tile_gh, width, operand1, 0.0f, gn.data(), c);
    live->stretches(begin, end, [&](int64_t from, int64_t length, float, int64_t at) {
      float *mean = statistics.data() + at, *rstd = statistics.data() + count + at;
      const float* source = rounded ? tile_x + at * c : xp + from * c;
      rows::layer_norm(source, length, c, norm_weight.const_data_ptr<float>(), norm_bias.const_data_ptr<float>(),
                       normedp + (begin + at) * c, mean, rstd);
      rows::layer_norm_backward(gn.data() + at * c, source, mean, rstd, norm_weight.const_data_ptr<float>(),
                                gp + from * c, length, c, gxp + from * c, norm_w.local(), norm_b.local());
    });
  });
  out[kMlpX] = gx;
  out[kMlpNormWeight] = norm_w.total();
  out[kMlpNormBias] = norm_b.total();
  out[kWeight1] = parallel_tn(gh, normed, type);
  out[kBias1] = bias1.total();
  out[kWeight2] = parallel_tn(gy, activation, type);
  out[kBias2] = bias2.total();
  return out;
}

// --- merging ---

enum MergeInput : size_t { kMergeX, kMergeNormWeight, kMergeNormBias, kMergeWeight, kMergeCount };

// The four places of an output place, in the order of the weights; -1 outside the map.
struct MergeMap {
  explicit MergeMap(torch::IntArrayRef sizes_MHWC)
      : height(sizes_MHWC[1]),
        width(sizes_MHWC[2]),
        out_height((height + 1) / 2),
        out_width((width + 1) / 2),
        channels(sizes_MHWC[3]) {}
  int64_t rows(int64_t pictures) const { return pictures * out_height * out_width; }
  template <class Work>
  void places(int64_t row, const Work& work) const {
    const int64_t picture = row / (out_height * out_width), inside = row % (out_height * out_width);
    const int64_t y = 2 * (inside / out_width), x = 2 * (inside % out_width);
    for (int64_t quarter = 0; quarter < 4; ++quarter) {
      const int64_t h = y + quarter % 2, w = x + quarter / 2;
      work(quarter, h < height && w < width ? (picture * height + h) * width + w : int64_t{-1});
    }
  }
  int64_t height, width, out_height, out_width, channels;
};

void gather_merged(const MergeMap& map, const float* x, int64_t begin, int64_t end, float* to) {
  const int64_t c = map.channels;
  for (int64_t row = begin; row < end; ++row)
    map.places(row, [&](int64_t quarter, int64_t from) {
      float* line = to + ((row - begin) * 4 + quarter) * c;
      if (from < 0)
        std::fill_n(line, c, 0.0f);
      else
        std::copy_n(x + from * c, c, line);
    });
}

struct MergeBackward : HandNode {
  torch::ScalarType type = torch::kFloat32;
  std::vector<int64_t> sizes;
  KeptRows centred;
  void release_intermediates() override { centred.reset(); }
  std::string name() const override { return "PatchMergingBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list MergeBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kMergeCount);
  if (!grads[0].defined()) return out;
  const bool rounded = centred.defined();
  const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(),
                      x = rounded ? torch::Tensor() : input(kMergeX).contiguous();
  const torch::Tensor weight = input(kMergeWeight).contiguous();
  const torch::Tensor norm_weight = input(kMergeNormWeight), norm_bias = input(kMergeNormBias);
  const GemmOperand operand(weight, type, GemmUse::kNn);
  const MergeMap map(sizes);
  const int64_t c = map.channels, wide = 4 * c, narrow = weight.size(0), total = map.rows(sizes[0]);
  torch::Tensor gx = torch::empty(sizes), normed = torch::empty({total, wide});
  ColumnSums<float> norm_w(wide), norm_b(wide);
  const float *gp = g.const_data_ptr<float>(), *xp = rounded ? nullptr : x.const_data_ptr<float>();
  float *gxp = gx.mutable_data_ptr<float>(), *normedp = normed.mutable_data_ptr<float>();
  for_row_tiles(total, kMlpTile, [&](int64_t begin, int64_t end) {
    const TileGemm gemm(type);
    const int64_t count = end - begin;
    std::vector<float> raw(static_cast<size_t>(count * wide)), gn(raw.size()), none(raw.size(), 0.0f),
        result(raw.size()), statistics(static_cast<size_t>(2 * count));
    const float* source = raw.data();
    if (rounded)
      source = centred.rows(begin, end, raw);
    else
      gather_merged(map, xp, begin, end, raw.data());
    rows::layer_norm(source, count, wide, norm_weight.const_data_ptr<float>(), norm_bias.const_data_ptr<float>(),
                     normedp + begin * wide, statistics.data(), statistics.data() + count);
    gemm.nn(count, wide, narrow, gp + begin * narrow, narrow, operand, 0.0f, gn.data(), wide);
    rows::layer_norm_backward(gn.data(), source, statistics.data(), statistics.data() + count,
                              norm_weight.const_data_ptr<float>(), none.data(), count, wide, result.data(),
                              norm_w.local(), norm_b.local());
    for (int64_t row = begin; row < end; ++row)
      map.places(row, [&](int64_t quarter, int64_t to) {
        if (to >= 0) std::copy_n(result.data() + ((row - begin) * 4 + quarter) * c, c, gxp + to * c);
      });
  });
  out[kMergeX] = gx;
  out[kMergeNormWeight] = norm_w.total();
  out[kMergeNormBias] = norm_b.total();
  out[kMergeWeight] = parallel_tn(g.view({total, narrow}), normed, type);
  return out;
}

}  // namespace

torch::Tensor mlp_part(const SwinBlockImpl& block, const torch::Tensor& x_MHWC, Kept kept) {
  const Mlp& mlp = block.mlp;
  const std::vector<torch::Tensor> inputs{x_MHWC,         block.norm2->weight, block.norm2->bias, mlp->fc1->weight,
                                          mlp->fc1->bias, mlp->fc2->weight,    mlp->fc2->bias};
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type);
  const auto node = make_node<MlpBackward>(inputs, /*let_go=*/rounded ? 1 : 0);
  auto live = std::make_unique<LiveRows>(kept, x_MHWC.size(1) * x_MHWC.size(2));
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = x_MHWC.contiguous(), w1 = mlp->fc1->weight.contiguous(), w2 = mlp->fc2->weight.contiguous();
    const GemmOperand operand1(w1, type, GemmUse::kNt), operand2(w2, type, GemmUse::kNt);
    const int64_t c = x.size(3), width = w1.size(0), total = live->count();
    torch::Tensor hidden, centred;
    if (node && rounded) centred = torch::empty({total, c}, torch::kBFloat16);
    if (node) hidden = torch::empty({total, width}, rounded ? torch::kBFloat16 : torch::kFloat32);
    out = kept.alive.size() == kept.scale.size() ? torch::empty_like(x) : x.clone();
    const float *xp = x.const_data_ptr<float>(), *bias1 = mlp->fc1->bias.const_data_ptr<float>(),
                *bias2 = mlp->fc2->bias.const_data_ptr<float>();
    float *to = out.mutable_data_ptr<float>(), *hiddenp = node && !rounded ? hidden.mutable_data_ptr<float>() : nullptr;
    for_row_tiles(total, kMlpTile, [&](int64_t begin, int64_t end) {
      const TileGemm gemm(type);
      const int64_t count = end - begin;
      std::vector<float> normed(static_cast<size_t>(count * c)), activation(static_cast<size_t>(count * width)),
          statistics(static_cast<size_t>(2 * count)), own;
      if (hiddenp == nullptr) own.resize(static_cast<size_t>(count * width));
      float* h = hiddenp != nullptr ? hiddenp + begin * width : own.data();
      live->stretches(begin, end, [&](int64_t from, int64_t length, float, int64_t at) {
        rows::layer_norm(xp + from * c, length, c, block.norm2->weight.const_data_ptr<float>(),
                         block.norm2->bias.const_data_ptr<float>(), normed.data() + at * c, statistics.data() + at,
                         statistics.data() + count + at);
        if (centred.defined())
          KeptRows::write_centred(xp + from * c, statistics.data() + at, length, c, centred, begin + at);
      });
      gemm.nt(count, width, c, normed.data(), c, operand1, 0.0f, h, width);
      kernels::bias_gelu(h, bias1, count, width, activation.data());
      if (node && rounded) KeptRows::write(h, count * width, hidden, begin * width);
      gemm.nt(count, c, width, activation.data(), width, operand2, 0.0f, normed.data(), c);
      live->stretches(begin, end, [&](int64_t from, int64_t length, float scale, int64_t at) {
        for (int64_t r = 0; r < length; ++r)
          for (int64_t i = 0; i < c; ++i)
            to[(from + r) * c + i] =
                xp[(from + r) * c + i] + scale * (normed[static_cast<size_t>((at + r) * c + i)] + bias2[i]);
      });
    });
    if (node) {
      node->live = std::move(live);
      node->type = type;
      node->hidden = KeptRows(hidden);
      node->centred = KeptRows(centred);
    }
  }
  attach(out, node);
  return out;
}

torch::Tensor merging_part(const PatchMergingImpl& merging, const torch::Tensor& x_MHWC) {
  const std::vector<torch::Tensor> inputs{x_MHWC, merging.norm->weight, merging.norm->bias, merging.reduction->weight};
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type);
  const auto node = make_node<MergeBackward>(inputs, /*let_go=*/rounded ? 1 : 0);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const torch::Tensor x = x_MHWC.contiguous(), weight = merging.reduction->weight.contiguous();
    const GemmOperand operand(weight, type, GemmUse::kNt);
    const MergeMap map(x.sizes());
    const int64_t wide = 4 * map.channels, narrow = weight.size(0);
    torch::Tensor centred;
    if (node && rounded) centred = torch::empty({map.rows(x.size(0)), wide}, torch::kBFloat16);
    out = torch::empty({x.size(0), map.out_height, map.out_width, narrow});
    const float* xp = x.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    for_row_tiles(map.rows(x.size(0)), kMlpTile, [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      std::vector<float> raw(static_cast<size_t>(count * wide)), normed(raw.size()),
          statistics(static_cast<size_t>(2 * count));
      gather_merged(map, xp, begin, end, raw.data());
      rows::layer_norm(raw.data(), count, wide, merging.norm->weight.const_data_ptr<float>(),
                       merging.norm->bias.const_data_ptr<float>(), normed.data(), statistics.data(),
                       statistics.data() + count);
      if (centred.defined()) KeptRows::write_centred(raw.data(), statistics.data(), count, wide, centred, begin);
      TileGemm(type).nt(count, narrow, wide, normed.data(), wide, operand, 0.0f, to + begin * narrow, narrow);
    });
    if (node) {
      node->type = type;
      node->sizes = x.sizes().vec();
      node->centred = KeptRows(centred);
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::lift_splat::fused
