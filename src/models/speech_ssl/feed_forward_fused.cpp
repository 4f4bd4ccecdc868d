// The feed-forward part as one autograd node over tiles of rows: LayerNorm, product, bias, swish, dropout, product,
// bias, dropout and residual while the tile is in the cache. Kept for backward: the input, the row statistics and the
// pre-activations. What the weight gradients' products read is rounded tile by tile where they run in bfloat16.
#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/speech_ssl/conformer.h"
#include "models/speech_ssl/fused_parts.h"
#include "models/speech_ssl/row_kernels.h"

namespace redline::models::speech::fused {

namespace {

using torch::autograd::variable_list;

enum FeedForwardInput : size_t { kR, kNormWeight, kNormBias, kWeight1, kBias1, kWeight2, kBias2, kNumInputs };

struct FeedForwardState {
  double factor = 0.5;
  rows::Dropout hidden_dropout, out_dropout;
  torch::ScalarType type = torch::kFloat32;
};

struct FeedForwardBackward : HandNode {
  FeedForwardState state;
  NormInput norm;
  KeptRows hidden;
  void release_intermediates() override {
    norm.reset();
    hidden.reset();
  }
  std::string name() const override { return "FeedForwardBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list FeedForwardBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNumInputs);
  if (!grads[0].defined()) return out;
  const RowMatrix g(grads[0]);
  const torch::Tensor r = NormInput::source(input(kR));
  const torch::Tensor w1 = input(kWeight1).contiguous(), w2 = input(kWeight2).contiguous();
  const torch::Tensor norm_weight = input(kNormWeight), norm_bias = input(kNormBias);
  const GemmOperand operand1(w1, state.type, GemmUse::kNn), operand2(w2, state.type, GemmUse::kNn);
  const int64_t dim = g.columns, width = w1.size(0);
  const bool rounded = bf16_products(state.type);
  const torch::ScalarType operands = rounded ? torch::kBFloat16 : torch::kFloat32;
  torch::Tensor gr = torch::empty(g.tensor.sizes()), gy = torch::empty({g.rows, dim}, operands),
                x = torch::empty({g.rows, dim}, operands), activation = torch::empty({g.rows, width}, operands),
                gh = torch::empty({g.rows, width}, operands);
  ColumnSums norm_w(dim), norm_b(dim), bias1(width), bias2(dim);
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    TileGemm gemm(state.type);
    std::vector<uint16_t> bits;
    std::vector<float> gx(static_cast<size_t>((end - begin) * dim)), unused(static_cast<size_t>(2 * (end - begin))),
        widened, centred;
    const int64_t count = end - begin;
    std::vector<float> own(static_cast<size_t>(rounded ? 2 * count * (dim + width) : 0));
    float* const free = own.data();
    float *tile_gy = rounded ? free : row(gy, begin), *tile_x = rounded ? free + count * dim : row(x, begin),
          *tile_gh = rounded ? free + 2 * count * dim : row(gh, begin),
          *tile_a = rounded ? free + count * (2 * dim + width) : row(activation, begin);
    rows::scaled_drop(g.row(begin), state.out_dropout.rows(begin, end, dim, bits), static_cast<float>(state.factor),
                      count * dim, tile_gy);
    rows::column_sums(tile_gy, count, dim, bias2.local());
    gemm.nn(count, width, dim, tile_gy, dim, operand2, 0.0f, tile_gh, width);
    rows::swish_drop_backward(tile_gh, hidden.rows(begin, end, widened),
                              state.hidden_dropout.rows(begin, end, width, bits), count * width, tile_a);
    rows::column_sums(tile_gh, count, width, bias1.local());
    gemm.nn(count, dim, width, tile_gh, width, operand1, 0.0f, gx.data(), dim);
    const float* tile_r = norm.rows(r, begin, end, centred);
    rows::layer_norm(tile_r, count, dim, values(norm_weight), values(norm_bias), tile_x, unused.data(),
                     unused.data() + count);
    rows::layer_norm_backward(gx.data(), tile_r, norm.mean(begin), norm.rstd(begin), values(norm_weight), g.row(begin),
                              count, dim, row(gr, begin, dim), norm_w.local(), norm_b.local());
    if (!rounded) return;
    KeptRows::write(tile_gy, count * dim, gy, begin * dim);
    KeptRows::write(tile_x, count * dim, x, begin * dim);
    KeptRows::write(tile_gh, count * width, gh, begin * width);
    KeptRows::write(tile_a, count * width, activation, begin * width);
  });
  out[kR] = gr;
  out[kNormWeight] = norm_w.total();
  out[kNormBias] = norm_b.total();
  out[kWeight1] = parallel_tn(gh, x, state.type);
  out[kWeight2] = parallel_tn(gy, activation, state.type);
  if (wants(kBias1)) out[kBias1] = bias1.total();
  if (wants(kBias2)) out[kBias2] = bias2.total();
  return out;
}

}  // namespace

torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass) {
  const std::vector<torch::Tensor> inputs{
      r, norm->weight, norm->bias, ff->linear1->weight, ff->linear1->bias, ff->linear2->weight, ff->linear2->bias};
  const bool rounded = bf16_products(gemm_type());
  const auto node = make_node<FeedForwardBackward>(inputs, /*let_go=*/rounded ? 1 : 0);
  FeedForwardState state{factor, rows::Dropout(*pass.ctx, dropout, place + ".hidden", r.size(1)),
                         rows::Dropout(*pass.ctx, dropout, place, r.size(1)), gemm_type()};
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const RowMatrix in(r);
    const torch::Tensor w1 = ff->linear1->weight.contiguous(), w2 = ff->linear2->weight.contiguous();
    const GemmOperand operand1(w1, state.type, GemmUse::kNt), operand2(w2, state.type, GemmUse::kNt);
    const int64_t dim = in.columns, width = w1.size(0);
    NormInput norm_in(in.rows, dim, node && rounded);
    torch::Tensor hidden;
    if (node) hidden = torch::empty({in.rows, width}, rounded ? torch::kBFloat16 : torch::kFloat32);
    out = torch::empty(r.sizes());
    for_row_tiles(in.rows, kRowTile, [&](int64_t begin, int64_t end) {
      TileGemm gemm(state.type);
      const int64_t count = end - begin;
      std::vector<float> x(static_cast<size_t>(count * dim)), activation(static_cast<size_t>(count * width)), scratch;
      std::vector<uint16_t> bits;
      if (!node || rounded) scratch.resize(static_cast<size_t>(count * width));
      float* h = !node || rounded ? scratch.data() : row(hidden, begin);
      rows::layer_norm(in.row(begin), count, dim, values(norm->weight), values(norm->bias), x.data(),
                       norm_in.mean(begin), norm_in.rstd(begin));
      norm_in.keep(in.row(begin), begin, end);
      gemm.nt(count, width, dim, x.data(), dim, operand1, 0.0f, h, width);
      rows::bias_swish_drop(h, values(ff->linear1->bias), state.hidden_dropout.rows(begin, end, width, bits), count,
                            width, activation.data());
      if (node && rounded) KeptRows::write(h, count * width, hidden, begin * width);
      gemm.nt(count, dim, width, activation.data(), width, operand2, 0.0f, x.data(), dim);
      rows::residual_drop(in.row(begin), x.data(), values(ff->linear2->bias),
                          state.out_dropout.rows(begin, end, dim, bits), static_cast<float>(factor), count, dim,
                          row(out, begin, dim));
    });
    if (node) {
      node->state = std::move(state);
      node->norm = norm_in;
      node->hidden = KeptRows(hidden);
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::speech::fused
