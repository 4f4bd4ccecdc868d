// A block as one autograd node. Forward: the depthwise layer, then over tiles of rows LayerNorm, product, bias, GELU,
// product, bias, layer scale, stochastic depth and residual while the tile is in the cache. Kept for backward: the
// input, the normalised rows with their deviations, and the pre-activations: half of what the operators keep. Where
// products run in bfloat16 all three are kept rounded, and the input itself is let go.
//
// Backward goes over chunks of rows: what the weight gradients need (gradient and activation of the wide layer) is made
// tile by tile and used at once, so it never takes more than a chunk. The layer scale's gradient needs the block's
// branch again; it falls out of the weight gradient instead: sum_r g[r,c] y[r,c] = sum_j W[c,j] (g^T a)[c,j] + ...
//
// Three ways through the rows: products of our own, float (mlp_panels.h) and bfloat16 (mlp_panels_bf16.h), and
// LibTorch's, for low precision without units for it and for processors that ours were not measured on.
#include <ATen/Parallel.h>

#include "models/convnext/depthwise.h"
#include "models/convnext/mlp_panels.h"
#include "models/convnext/mlp_panels_bf16.h"
#include "models/convnext/model.h"
#include "models/convnext/row_kernels.h"
#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/panel_gemm.h"
#include "models/layers/row_kernels.h"

namespace redline::models::convnext::fused {

namespace {

using torch::autograd::variable_list;

constexpr int64_t kBlockTile = 128;        // rows of a tile
constexpr int64_t kChunkFloats = 1 << 19;  // of a chunk's wide rows
constexpr int64_t kPanel = 512;            // rows of a weight gradient that a thread computes at a time

enum BlockInput : size_t {
  kX,
  kTapWeight,
  kTapBias,
  kNormWeight,
  kNormBias,
  kWeight1,
  kBias1,
  kWeight2,
  kBias2,
  kScale,
  kNumInputs
};

const float* values(const torch::Tensor& t) { return t.defined() ? t.const_data_ptr<float>() : nullptr; }
float* at_row(torch::Tensor& t, int64_t row) {
  return t.mutable_data_ptr<float>() + row * (t.dim() == 1 ? 1 : t.size(-1));
}
const float* at_row(const torch::Tensor& t, int64_t row) {
  return t.const_data_ptr<float>() + row * (t.dim() == 1 ? 1 : t.size(-1));
}

uint16_t* low_words(torch::Tensor& t) { return reinterpret_cast<uint16_t*>(t.mutable_data_ptr<at::BFloat16>()); }

struct BlockBackward : HandNode {
  MapShape shape;
  torch::ScalarType type = torch::kFloat32;
  bool in_panels = false, rounded = false;
  torch::Tensor hat, rstd, hidden;  // [rows, C], [rows], [rows, 4 C] or its panels; the two large ones may be rounded
  torch::Tensor factors;            // [N]; undefined: nothing is dropped
  KeptRows kept_x;                  // the input where it is rounded, else it is an input of the node
  void release_intermediates() override {
    hat.reset();
    rstd.reset();
    hidden.reset();
    kept_x.reset();
  }
  std::string name() const override { return "ConvNeXtBlockBackward"; }
  variable_list apply(variable_list&& grads) override;

 private:
  // What the rows between the depthwise layer and the residual yield.
  struct RowGrads {
    torch::Tensor grad_taps_out, grad_w1, grad_w2, bias1;  // the second: before layer scale
  };
  void rows_backward(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                     ColumnSums<float>& norm_sums, RowGrads& out);
  void rows_backward_in_panels(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                               ColumnSums<float>& norm_sums, RowGrads& out);
  void rounded_rows_backward(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                             ColumnSums<float>& norm_sums, RowGrads& out);
  rows::Factors factors_from(int64_t row) const { return {values(factors), shape.height * shape.width, row}; }
};

// Of whole chunks: `c` [m, n] (+)= a^T b over `count` rows, in panels of rows of c.
void add_weight_grad(const TileGemm& gemm, int64_t count, const float* a, int64_t m, const float* b, int64_t n,
                     bool add, float* c) {
  for_row_tiles(m, kPanel, [&](int64_t begin, int64_t end) {
    gemm.tn(end - begin, n, count, a + begin, m, b, n, add ? 1.0f : 0.0f, c + begin * n, n);
  });
}

// g^T a of the second product becomes its weight's gradient; the layer scale's comes with it.
torch::Tensor scale_gradients(torch::Tensor& product, const torch::Tensor& weight2, const torch::Tensor& bias2,
                              const torch::Tensor& scale, torch::Tensor& bias_sum) {
  const int64_t dim = weight2.size(0), width = weight2.size(1);
  torch::Tensor out = torch::empty({dim});
  float *p = product.mutable_data_ptr<float>(), *o = out.mutable_data_ptr<float>(),
        *sums = bias_sum.mutable_data_ptr<float>();
  const float *w = values(weight2), *b = values(bias2), *s = values(scale);
  at::parallel_for(0, dim, std::max<int64_t>(1, 32768 / width), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      o[c] = rows::scale_and_dot(p + c * width, w + c * width, s[c], width) + sums[c] * b[c];
      sums[c] *= s[c];
    }
  });
  return out;
}

void BlockBackward::rows_backward(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                                  ColumnSums<float>& norm_sums, RowGrads& out) {
  const torch::Tensor norm_weight = input(kNormWeight), norm_bias = input(kNormBias), scale = input(kScale);
  const GemmOperand operand1(w1, type), operand2(w2, type);
  const int64_t num_rows = shape.rows(), dim = shape.channels, width = w1.size(0);
  const int64_t chunk = std::min(num_rows, std::max<int64_t>(kBlockTile, kChunkFloats / width));
  torch::Tensor normed = torch::empty({chunk, dim}),
                kept = factors.defined() ? torch::empty({chunk, dim}) : torch::Tensor();
  torch::Tensor wide_grad = torch::empty({chunk, width}), activation = torch::empty({chunk, width});
  ColumnSums<float> bias1(width);
  const TileGemm gemm(type);
  for (int64_t start = 0; start < num_rows; start += chunk) {
    const int64_t count = std::min(chunk, num_rows - start);
    for_row_tiles(count, kBlockTile, [&](int64_t begin, int64_t end) {
      const int64_t n = end - begin, row = start + begin;
      std::vector<float> scratch(static_cast<size_t>(n * dim));
      rows::residual_backward(at_row(g, 0) + row * dim, values(scale), factors_from(row), n, dim,
                              kept.defined() ? at_row(kept, begin) : nullptr, scratch.data(), norm_sums.local(2));
      gemm.nn(n, width, dim, scratch.data(), dim, operand2, 0.0f, at_row(wide_grad, begin), width);
      rows::gelu_backward(at_row(wide_grad, begin), at_row(hidden, row), n, width, at_row(activation, begin),
                          bias1.local());
      gemm.nn(n, dim, width, at_row(wide_grad, begin), width, operand1, 0.0f, scratch.data(), dim);
      rows::affine(at_row(hat, row), values(norm_weight), values(norm_bias), n, dim, at_row(normed, begin));
      rows::norm_backward(scratch.data(), at_row(hat, row), at_row(rstd, row), values(norm_weight), n, dim,
                          at_row(out.grad_taps_out, row), norm_sums.local(0), norm_sums.local(1));
    });
    add_weight_grad(gemm, count, values(wide_grad), width, values(normed), dim, start > 0, at_row(out.grad_w1, 0));
    add_weight_grad(gemm, count, kept.defined() ? values(kept) : at_row(g, 0) + start * dim, dim, values(activation),
                    width, start > 0, at_row(out.grad_w2, 0));
  }
  out.bias1 = bias1.total();
}

void BlockBackward::rows_backward_in_panels(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                                            ColumnSums<float>& norm_sums, RowGrads& out) {
  const torch::Tensor norm_weight = input(kNormWeight), norm_bias = input(kNormBias), scale = input(kScale);
  out.bias1 =
      panel_mlp::backward({w1.size(1), w1.size(0), values(norm_weight), values(norm_bias), values(w1), nullptr,
                           values(w2), nullptr, values(scale)},
                          {shape.rows(), at_row(g, 0), factors_from(0), values(hat), values(rstd), values(hidden),
                           at_row(out.grad_taps_out, 0), at_row(out.grad_w1, 0), at_row(out.grad_w2, 0), &norm_sums});
}

void BlockBackward::rounded_rows_backward(const torch::Tensor& g, const torch::Tensor& w1, const torch::Tensor& w2,
                                          ColumnSums<float>& norm_sums, RowGrads& out) {
  const torch::Tensor norm_weight = input(kNormWeight), norm_bias = input(kNormBias), scale = input(kScale);
  out.bias1 =
      panel_mlp::backward({w1.size(1), w1.size(0), values(norm_weight), values(norm_bias), values(w1), nullptr,
                           values(w2), nullptr, values(scale)},
                          panel_mlp::Bf16Backward{w1, shape.rows(), at_row(g, 0), factors_from(0), low_words(hat),
                                                  values(rstd), low_words(hidden), at_row(out.grad_taps_out, 0),
                                                  at_row(out.grad_w1, 0), at_row(out.grad_w2, 0), &norm_sums});
}

variable_list BlockBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNumInputs);
  if (!grads[0].defined()) return out;
  const torch::Tensor g = grads[0].to(torch::kFloat32).contiguous(), scale = input(kScale);
  const torch::Tensor w1 = input(kWeight1).contiguous(), w2 = input(kWeight2).contiguous();
  const int64_t num_rows = shape.rows(), dim = shape.channels, width = w1.size(0);
  RowGrads found{torch::empty({num_rows, dim}), torch::empty({width, dim}), torch::empty({dim, width}), {}};
  ColumnSums<float> norm_sums(dim, 3);
  if (num_rows == 0) {
    found.grad_w1.zero_();
    found.grad_w2.zero_();
  }
  if (rounded)
    rounded_rows_backward(g, w1, w2, norm_sums, found);
  else if (in_panels)
    rows_backward_in_panels(g, w1, w2, norm_sums, found);
  else
    rows_backward(g, w1, w2, norm_sums, found);
  const torch::Tensor x = rounded ? kept_x.tensor() : input(kX);
  release_intermediates();
  out[kNormWeight] = norm_sums.total(0);
  out[kNormBias] = norm_sums.total(1);
  out[kBias2] = norm_sums.total(2);
  out[kBias1] = found.bias1;
  if (scale.defined()) out[kScale] = scale_gradients(found.grad_w2, w2, input(kBias2), scale, out[kBias2]);
  out[kWeight1] = found.grad_w1;
  out[kWeight2] = found.grad_w2;
  torch::Tensor taps = torch::empty({kTaps, dim});
  out[kTapBias] = torch::empty({dim});
  depthwise_weight_grad(shape, values(x.to(torch::kFloat32)), values(found.grad_taps_out),
                        taps.mutable_data_ptr<float>(), out[kTapBias].mutable_data_ptr<float>());
  out[kTapWeight] = channels_first(taps);
  if (wants(kX)) {
    out[kX] = torch::empty(g.sizes());
    const torch::Tensor flipped = taps_first(input(kTapWeight), /*flipped=*/true);
    depthwise_sum(shape, values(found.grad_taps_out), values(flipped), nullptr, values(g), at_row(out[kX], 0));
  }
  return out;
}

// Forward of the same rows by LibTorch's products. `hat` holds the depthwise layer's output.
void rows_forward(const Block& b, const torch::Tensor& x, torch::ScalarType type, const rows::Factors& factors,
                  torch::Tensor& hat, torch::Tensor& rstd, torch::Tensor& hidden, torch::Tensor& out) {
  const Mlp& mlp = b->mlp;
  const torch::Tensor w1 = mlp->fc1->weight.contiguous(), w2 = mlp->fc2->weight.contiguous();
  const GemmOperand operand1(w1, type), operand2(w2, type);
  const int64_t dim = hat.size(1), width = w1.size(0);
  for_row_tiles(hat.size(0), kBlockTile, [&](int64_t begin, int64_t end) {
    const TileGemm gemm(type);
    const int64_t n = end - begin;
    std::vector<float> normed(static_cast<size_t>(n * dim)), activation(static_cast<size_t>(n * width)), scratch;
    if (!hidden.defined()) scratch.resize(static_cast<size_t>(n * width));
    float* h = hidden.defined() ? at_row(hidden, begin) : scratch.data();
    rows::normalise(at_row(hat, begin), n, dim, at_row(hat, begin), at_row(rstd, begin));
    rows::affine(at_row(hat, begin), values(b->norm->weight), values(b->norm->bias), n, dim, normed.data());
    gemm.nt(n, width, dim, normed.data(), dim, operand1, 0.0f, h, width);
    rows::bias_gelu(h, values(mlp->fc1->bias), n, width, activation.data());
    gemm.nt(n, dim, width, activation.data(), width, operand2, 0.0f, normed.data(), dim);
    rows::residual(at_row(x, 0) + begin * dim, normed.data(), values(mlp->fc2->bias), values(b->gamma),
                   {factors.of_image, factors.rows_per_image, begin}, n, dim, at_row(out, 0) + begin * dim);
  });
}

}  // namespace

torch::Tensor block(const Block& b, const torch::Tensor& x_in, const Pass& pass) {
  const torch::Tensor x = x_in.contiguous();
  const Mlp& mlp = b->mlp;
  const torch::ScalarType type = gemm_type();
  const bool rounded = bf16_products(type);
  const auto node =
      make_node<BlockBackward>({x, b->conv_dw->weight, b->conv_dw->bias, b->norm->weight, b->norm->bias,
                                mlp->fc1->weight, mlp->fc1->bias, mlp->fc2->weight, mlp->fc2->bias, b->gamma},
                               /*let_go=*/rounded ? 1 : 0);
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const MapShape shape{x.size(0), x.size(1), x.size(2), x.size(3)};
    torch::Tensor factors;
    if (pass.ctx->training() && b->drop_path > 0.0)
      factors = pass.ctx->drop_path(torch::ones({shape.images}), b->drop_path, b->place + ".drop_path");
    const bool in_panels = type == torch::kFloat32 && panels::preferred();
    const int64_t num_rows = shape.rows(), dim = shape.channels, width = mlp->fc1->weight.size(0);
    torch::Tensor hat = torch::empty({num_rows, dim}), rstd = torch::empty({num_rows}), hidden, low_hat;
    if (node && rounded) {
      low_hat = torch::empty({num_rows, dim}, torch::kBFloat16);
      hidden = torch::empty({num_rows, panel_mlp::hidden_line(width)}, torch::kBFloat16);
    } else if (node)
      hidden = in_panels ? torch::empty({panel_mlp::hidden_floats(num_rows, width)}) : torch::empty({num_rows, width});
    out = torch::empty(x.sizes());
    const torch::Tensor taps = taps_first(b->conv_dw->weight, /*flipped=*/false);
    depthwise_sum(shape, values(x), values(taps), values(b->conv_dw->bias), nullptr, at_row(hat, 0));
    const rows::Factors from_first{values(factors), shape.height * shape.width, 0};
    if (rounded) {
      const torch::Tensor w1 = mlp->fc1->weight.contiguous(), w2 = mlp->fc2->weight.contiguous();
      panel_mlp::forward({dim, width, values(b->norm->weight), values(b->norm->bias), values(w1),
                          values(mlp->fc1->bias), values(w2), values(mlp->fc2->bias), values(b->gamma)},
                         panel_mlp::Bf16Forward{w1, w2, num_rows, at_row(x, 0), from_first, at_row(hat, 0),
                                                node ? low_words(low_hat) : nullptr, at_row(rstd, 0),
                                                node ? low_words(hidden) : nullptr, at_row(out, 0)});
      hat = low_hat;
    } else if (in_panels) {
      const torch::Tensor w1 = mlp->fc1->weight.contiguous(), w2 = mlp->fc2->weight.contiguous();
      panel_mlp::forward({dim, width, values(b->norm->weight), values(b->norm->bias), values(w1),
                          values(mlp->fc1->bias), values(w2), values(mlp->fc2->bias), values(b->gamma)},
                         {num_rows, at_row(x, 0), from_first, at_row(hat, 0), at_row(rstd, 0),
                          node ? hidden.mutable_data_ptr<float>() : nullptr, at_row(out, 0)});
    } else {
      rows_forward(b, x, type, from_first, hat, rstd, hidden, out);
    }
    if (node) {
      node->shape = shape;
      node->type = type;
      node->in_panels = in_panels;
      node->rounded = rounded;
      node->hat = hat;
      node->rstd = rstd;
      node->hidden = hidden;
      node->factors = factors;
      if (rounded) node->kept_x = KeptRows(x, type);
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::convnext::fused
