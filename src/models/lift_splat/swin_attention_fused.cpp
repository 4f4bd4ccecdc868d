// Window attention: rows are gathered into windows, computed and scattered back tile by tile, so that shift and
// permutation cost no pass of their own. Places that only pad a map take part in attention with the value of the bias,
// as in the reference, but no product is made for them: what goes in is zero, and what comes out is dropped. Small maps
// are more than half padding. Kept for backward: queries, keys, values and the mixed values of the real places, by
// window; the weights of attention are made again. Of the input, where products run in bfloat16, what lies around its
// rows' means is kept rounded, in the order of the windows too.
#include <algorithm>
#include <cmath>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/norm_rows.h"
#include "models/layers/row_kernels.h"
#include "models/lift_splat/swin.h"
#include "models/lift_splat/swin_fused.h"
#include "models/lift_splat/swin_kernels.h"

namespace redline::models::lift_splat::fused {

namespace {

using torch::autograd::variable_list;

constexpr int64_t kTileRows = 196;

enum AttentionInput : size_t {
  kX,
  kNormWeight,
  kNormBias,
  kQkvWeight,
  kQkvBias,
  kProjWeight,
  kProjBias,
  kTable,
  kCount
};

// Everything about one call that is not a number of the model. Rows are those of real places in the order of their
// windows; every place of a map stands in one window.
struct AttentionPlan {
  AttentionPlan(const SwinBlockImpl& block, const torch::Tensor& x, const WindowMap& map, Kept which)
      : kept(std::move(which)),
        sources(map.sources(block.shift)),
        regions(map.regions(block.shift)),
        windows(map.windows()),
        places(map.places()),
        map_places(map.height * map.width),
        width(x.size(3)),
        heads(block.attn->heads),
        type(gemm_type()) {
    shape.n = places;
    shape.padded = (places + 7) / 8 * 8;
    shape.head_dim = width / heads;
    shape.stride = 3 * width;
    shape.out_stride = width;
    shape.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
    mixed.assign(static_cast<size_t>(windows), 0);
    first.assign(1, 0);
    for (int64_t w = 0; w < windows; ++w) {
      const auto from = sources.begin() + w * places;
      first.push_back(first.back() + std::count_if(from, from + places, [](int32_t source) { return source >= 0; }));
      if (regions.empty()) continue;
      const auto region = regions.begin() + w * places;
      mixed[static_cast<size_t>(w)] = std::any_of(region, region + places, [&](uint8_t r) { return r != *region; });
    }
  }
  int64_t all_windows() const { return static_cast<int64_t>(kept.alive.size()) * windows; }
  int64_t all_rows() const { return static_cast<int64_t>(kept.alive.size()) * map_places; }
  int64_t row_of(int64_t window) const {  // the first
    return window / windows * map_places + first[static_cast<size_t>(window % windows)];
  }
  bool whole(int64_t window) const { return row_of(window + 1) - row_of(window) == places; }
  const int32_t* sources_of(int64_t window) const { return sources.data() + window % windows * places; }
  const uint8_t* regions_of(int64_t window) const {
    const int64_t w = window % windows;
    return mixed[static_cast<size_t>(w)] ? regions.data() + w * places : nullptr;
  }
  // Calls work(row within the tile, row of x, picture) for the rows of windows [begin, end).
  template <class Work>
  void for_rows(int64_t begin, int64_t end, const Work& work) const {
    int64_t at = 0;
    for (int64_t window = begin; window < end; ++window) {
      const int64_t picture = kept.alive[static_cast<size_t>(window / windows)];
      const int32_t* from = sources_of(window);
      for (int64_t i = 0; i < places; ++i)
        if (from[i] >= 0) work(at++, picture * map_places + from[i], picture);
    }
  }
  // Tiles of whole windows, in parallel.
  void for_tiles(const std::function<void(int64_t begin, int64_t end)>& work) const {
    const int64_t per_tile = std::max<int64_t>(1, kTileRows * windows / map_places), total = all_windows();
    const int64_t threads = at::get_num_threads();
    const int64_t tiles = std::min(total, ((total + per_tile - 1) / per_tile + threads - 1) / threads * threads);
    at::parallel_for(0, tiles, 1, [&](int64_t from, int64_t to) {
      for (int64_t tile = from; tile < to; ++tile) work(total * tile / tiles, total * (tile + 1) / tiles);
    });
  }

  Kept kept;
  std::vector<int32_t> sources;
  std::vector<uint8_t> regions, mixed;  // mixed: windows that hold places of several regions
  std::vector<int64_t> first;           // rows before each window of a picture
  int64_t windows, places, map_places, width, heads;
  torch::ScalarType type;
  kernels::HeadShape shape;
};

// Rows of one window with the padded places between them, for windows that are not whole.
void spread_rows(const AttentionPlan& plan, int64_t window, const float* rows_in, int64_t n, const float* padding,
                 float* to) {
  const int32_t* from = plan.sources_of(window);
  for (int64_t i = 0; i < plan.places; ++i) {
    if (from[i] >= 0) {
      std::copy_n(rows_in, n, to + i * n);
      rows_in += n;
    } else if (padding != nullptr) {
      std::copy_n(padding, n, to + i * n);
    } else {
      std::fill_n(to + i * n, n, 0.0f);
    }
  }
}
// The real ones of them again; the padded ones are added to `padded_sum` where it is given.
void collect_rows(const AttentionPlan& plan, int64_t window, const float* spread, int64_t n, float* to,
                  float* padded_sum) {
  const int32_t* from = plan.sources_of(window);
  for (int64_t i = 0; i < plan.places; ++i) {
    if (from[i] >= 0) {
      std::copy_n(spread + i * n, n, to);
      to += n;
    } else if (padded_sum != nullptr) {
      rows::column_sums(spread + i * n, 1, n, padded_sum);
    }
  }
}

// Normed rows of a tile. `raw` gets the rows before the norm.
void normed_tile(const AttentionPlan& plan, int64_t begin, int64_t end, const float* x, const float* weight,
                 const float* bias, float* raw, float* normed, float* mean, float* rstd) {
  const int64_t c = plan.width, count = plan.row_of(end) - plan.row_of(begin);
  plan.for_rows(begin, end, [&](int64_t at, int64_t from, int64_t) { std::copy_n(x + from * c, c, raw + at * c); });
  rows::layer_norm(raw, count, c, weight, bias, normed, mean, rstd);
}

// The bias table as [heads, n, padded].
std::vector<float> padded_bias(const AttentionPlan& plan, const float* table, const int64_t* index) {
  const int64_t n = plan.places, padded = plan.shape.padded;
  std::vector<float> out(static_cast<size_t>(plan.heads * n * padded), 0.0f);
  for (int64_t h = 0; h < plan.heads; ++h)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        out[static_cast<size_t>((h * n + i) * padded + j)] = table[index[i * n + j] * plan.heads + h];
  return out;
}

struct AttentionBackward : HandNode {
  std::unique_ptr<AttentionPlan> plan;
  KeptRows qkv, mixed, centred;
  torch::Tensor index;
  void release_intermediates() override {
    qkv.reset();
    mixed.reset();
    centred.reset();
  }
  std::string name() const override { return "WindowAttentionBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list AttentionBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kCount);
  if (!grads[0].defined()) return out;
  const AttentionPlan& p = *plan;
  const bool rounded = centred.defined();
  const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(),
                      x = rounded ? torch::Tensor() : input(kX).contiguous();
  const torch::Tensor w_qkv = input(kQkvWeight).contiguous(), w_proj = input(kProjWeight).contiguous();
  const torch::Tensor norm_weight = input(kNormWeight), norm_bias = input(kNormBias), qkv_bias = input(kQkvBias),
                      table = input(kTable).contiguous();
  const GemmOperand qkv_operand(w_qkv, p.type, GemmUse::kNn), proj_operand(w_proj, p.type, GemmUse::kNn);
  const int64_t c = p.width, total = p.all_rows(), n = p.places, padded = p.shape.padded;
  const std::vector<float> bias = padded_bias(p, table.const_data_ptr<float>(), index.const_data_ptr<int64_t>());
  torch::Tensor gx = p.kept.alive.size() == p.kept.scale.size() ? torch::empty_like(g) : g.clone(),
                gy = torch::empty({total, c}), gqkv = torch::empty({total, 3 * c}), normed = torch::empty({total, c});
  ColumnSums<float> norm_w(c), norm_b(c), qkv_sums(3 * c), proj_bias(c), scores(p.heads * n * padded);
  const float *gp = g.const_data_ptr<float>(), *xp = rounded ? nullptr : x.const_data_ptr<float>(),
              *padding = qkv_bias.defined() ? qkv_bias.const_data_ptr<float>() : nullptr;
  float *gxp = gx.mutable_data_ptr<float>(), *gyp = gy.mutable_data_ptr<float>(),
        *gqkvp = gqkv.mutable_data_ptr<float>(), *normedp = normed.mutable_data_ptr<float>();
  p.for_tiles([&](int64_t begin, int64_t end) {
    const TileGemm gemm(p.type);
    const int64_t row = p.row_of(begin), count = p.row_of(end) - row;
    std::vector<float> raw(static_cast<size_t>(count * c)), grad(raw.size()), residual(raw.size()), result(raw.size()),
        statistics(static_cast<size_t>(2 * count)), spread_qkv, spread_grad, spread_gqkv, widened;
    const float* tile_qkv = qkv.rows(row, row + count, widened);
    float* tile_gy = gyp + row * c;
    p.for_rows(begin, end, [&](int64_t at, int64_t from, int64_t picture) {
      const float scale = p.kept.scale[static_cast<size_t>(picture)];
      const float* line = gp + from * c;
      std::copy_n(line, c, residual.data() + at * c);
      for (int64_t i = 0; i < c; ++i) tile_gy[at * c + i] = scale * line[i];
    });
    rows::column_sums(tile_gy, count, c, proj_bias.local());
    gemm.nn(count, c, c, tile_gy, c, proj_operand, 0.0f, grad.data(), c);
    kernels::HeadScratch scratch(p.shape);
    for (int64_t w = begin; w < end; ++w) {
      const bool whole = p.whole(w);
      const float *in = tile_qkv + (p.row_of(w) - row) * 3 * c, *from = grad.data() + (p.row_of(w) - row) * c;
      float* to = gqkvp + p.row_of(w) * 3 * c;
      if (!whole) {
        spread_qkv.resize(static_cast<size_t>(n * 3 * c));
        spread_gqkv.resize(spread_qkv.size());
        spread_grad.resize(static_cast<size_t>(n * c));
        spread_rows(p, w, in, 3 * c, padding, spread_qkv.data());
        spread_rows(p, w, from, c, nullptr, spread_grad.data());
        in = spread_qkv.data(), from = spread_grad.data(), to = spread_gqkv.data();
      }
      for (int64_t h = 0; h < p.heads; ++h) {
        const int64_t at = h * p.shape.head_dim;
        kernels::head_backward(p.shape, in + at, in + at + c, in + at + 2 * c, bias.data() + h * n * padded,
                               p.regions_of(w), from + at, to + at, to + at + c, to + at + 2 * c,
                               scores.local() + h * n * padded, scratch);
      }
      if (!whole) collect_rows(p, w, to, 3 * c, gqkvp + p.row_of(w) * 3 * c, qkv_sums.local());
    }
    const float* tile_gqkv = gqkvp + row * 3 * c;
    rows::column_sums(tile_gqkv, count, 3 * c, qkv_sums.local());
    gemm.nn(count, c, 3 * c, tile_gqkv, 3 * c, qkv_operand, 0.0f, grad.data(), c);
    const float* source = raw.data();
    if (rounded) {
      source = centred.rows(row, row + count, raw);
      rows::layer_norm(source, count, c, norm_weight.const_data_ptr<float>(), norm_bias.const_data_ptr<float>(),
                       normedp + row * c, statistics.data(), statistics.data() + count);
    } else {
      normed_tile(p, begin, end, xp, norm_weight.const_data_ptr<float>(), norm_bias.const_data_ptr<float>(), raw.data(),
                  normedp + row * c, statistics.data(), statistics.data() + count);
    }
    rows::layer_norm_backward(grad.data(), source, statistics.data(), statistics.data() + count,
                              norm_weight.const_data_ptr<float>(), residual.data(), count, c, result.data(),
                              norm_w.local(), norm_b.local());
    p.for_rows(begin, end,
               [&](int64_t at, int64_t from, int64_t) { std::copy_n(result.data() + at * c, c, gxp + from * c); });
  });
  out[kX] = gx;
  out[kNormWeight] = norm_w.total();
  out[kNormBias] = norm_b.total();
  out[kQkvWeight] = parallel_tn(gqkv, normed, p.type);
  if (wants(kQkvBias)) out[kQkvBias] = qkv_sums.total();
  out[kProjWeight] = parallel_tn(gy, mixed.tensor(), p.type);
  out[kProjBias] = proj_bias.total();
  const torch::Tensor by_pair = scores.total().view({p.heads, n, padded}).narrow(2, 0, n).permute({1, 2, 0});
  out[kTable] = torch::zeros_like(table).index_add_(0, index.view({-1}), by_pair.reshape({n * n, p.heads}));
  return out;
}

}  // namespace

torch::Tensor attention_part(const SwinBlockImpl& block, const torch::Tensor& x_MHWC, const WindowMap& map, Kept kept) {
  const WindowAttention& attn = block.attn;
  const std::vector<torch::Tensor> inputs{
      x_MHWC,          block.norm1->weight, block.norm1->bias, attn->qkv->weight,
      attn->qkv->bias, attn->proj->weight,  attn->proj->bias,  attn->relative_position_bias_table};
  const auto node = make_node<AttentionBackward>(inputs, /*let_go=*/bf16_products(gemm_type()) ? 1 : 0);
  auto plan = std::make_unique<AttentionPlan>(block, x_MHWC, map, std::move(kept));
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const AttentionPlan& p = *plan;
    const torch::Tensor x = x_MHWC.contiguous(), w_qkv = attn->qkv->weight.contiguous(),
                        w_proj = attn->proj->weight.contiguous(),
                        table = attn->relative_position_bias_table.contiguous();
    const GemmOperand qkv_operand(w_qkv, p.type, GemmUse::kNt), proj_operand(w_proj, p.type, GemmUse::kNt);
    const int64_t c = p.width, total = p.all_rows(), n = p.places;
    const std::vector<float> bias =
        padded_bias(p, table.const_data_ptr<float>(), attn->relative_position_index.const_data_ptr<int64_t>());
    const bool rounded = bf16_products(p.type), keeps_floats = node && !rounded;
    torch::Tensor qkv, mixed, centred;
    if (node && rounded) centred = torch::empty({total, c}, torch::kBFloat16);
    if (node) {
      const torch::ScalarType kept_type = rounded ? torch::kBFloat16 : torch::kFloat32;
      qkv = torch::empty({total, 3 * c}, kept_type);
      mixed = torch::empty({total, c}, kept_type);
    }
    out = p.kept.alive.size() == p.kept.scale.size() ? torch::empty_like(x) : x.clone();
    const float* xp = x.const_data_ptr<float>();
    const float* qkv_bias = attn->qkv->bias.defined() ? attn->qkv->bias.const_data_ptr<float>() : nullptr;
    const float* proj_bias = attn->proj->bias.const_data_ptr<float>();
    float* to = out.mutable_data_ptr<float>();
    float *qkvp = keeps_floats ? qkv.mutable_data_ptr<float>() : nullptr,
          *mixedp = keeps_floats ? mixed.mutable_data_ptr<float>() : nullptr;
    p.for_tiles([&](int64_t begin, int64_t end) {
      const TileGemm gemm(p.type);
      const int64_t row = p.row_of(begin), count = p.row_of(end) - row;
      std::vector<float> raw(static_cast<size_t>(count * c)), normed(raw.size()),
          statistics(static_cast<size_t>(2 * count)), own_qkv, own_mixed, spread_qkv, spread_mixed;
      if (!keeps_floats)
        own_qkv.resize(static_cast<size_t>(count * 3 * c)), own_mixed.resize(static_cast<size_t>(count * c));
      float* tile_qkv = keeps_floats ? qkvp + row * 3 * c : own_qkv.data();
      float* tile_mixed = keeps_floats ? mixedp + row * c : own_mixed.data();
      normed_tile(p, begin, end, xp, block.norm1->weight.const_data_ptr<float>(),
                  block.norm1->bias.const_data_ptr<float>(), raw.data(), normed.data(), statistics.data(),
                  statistics.data() + count);
      if (centred.defined()) KeptRows::write_centred(raw.data(), statistics.data(), count, c, centred, row);
      gemm.nt(count, 3 * c, c, normed.data(), c, qkv_operand, 0.0f, tile_qkv, 3 * c);
      if (qkv_bias != nullptr)
        for (int64_t r = 0; r < count; ++r)
          for (int64_t i = 0; i < 3 * c; ++i) tile_qkv[r * 3 * c + i] += qkv_bias[i];
      kernels::HeadScratch scratch(p.shape);
      for (int64_t w = begin; w < end; ++w) {
        const bool whole = p.whole(w);
        const float* in = tile_qkv + (p.row_of(w) - row) * 3 * c;
        float* result = tile_mixed + (p.row_of(w) - row) * c;
        if (!whole) {
          spread_qkv.resize(static_cast<size_t>(n * 3 * c));
          spread_mixed.resize(static_cast<size_t>(n * c));
          spread_rows(p, w, in, 3 * c, qkv_bias, spread_qkv.data());
          in = spread_qkv.data(), result = spread_mixed.data();
        }
        for (int64_t h = 0; h < p.heads; ++h) {
          const float* head = in + h * p.shape.head_dim;
          kernels::head_forward(p.shape, head, head + c, head + 2 * c, bias.data() + h * n * p.shape.padded,
                                p.regions_of(w), result + h * p.shape.head_dim, scratch);
        }
        if (!whole) collect_rows(p, w, result, c, tile_mixed + (p.row_of(w) - row) * c, nullptr);
      }
      if (node && rounded) {
        KeptRows::write(tile_qkv, count * 3 * c, qkv, row * 3 * c);
        KeptRows::write(tile_mixed, count * c, mixed, row * c);
      }
      gemm.nt(count, c, c, tile_mixed, c, proj_operand, 0.0f, normed.data(), c);
      p.for_rows(begin, end, [&](int64_t at, int64_t from, int64_t picture) {
        const float scale = p.kept.scale[static_cast<size_t>(picture)];
        const float *line = normed.data() + at * c, *base = raw.data() + at * c;
        for (int64_t i = 0; i < c; ++i) to[from * c + i] = base[i] + scale * (line[i] + proj_bias[i]);
      });
    });
    if (node) {
      node->qkv = KeptRows(qkv);
      node->mixed = KeptRows(mixed);
      node->centred = KeptRows(centred);
      node->index = attn->relative_position_index;
      node->plan = std::move(plan);
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::lift_splat::fused
