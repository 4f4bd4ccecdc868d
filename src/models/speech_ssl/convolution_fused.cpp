// The convolution part as one autograd node, all of it channels-last rows: LayerNorm, product, GLU; depthwise over
// time; BatchNorm over all rows (NeMo counts padded frames); swish, product, dropout, residual. Two barriers, around
// the batch statistics. Kept for backward: the input, the row statistics, the GLU's input and the depthwise output.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/speech_ssl/fused_parts.h"
#include "models/speech_ssl/row_kernels.h"

namespace redline::models::speech::fused {

namespace {

using torch::autograd::variable_list;

enum ConvolutionInput : size_t {
  kConvR,
  kConvNormWeight,
  kConvNormBias,
  kPointwise1,
  kPointwise1Bias,
  kDepthwise,
  kDepthwiseBias,
  kGamma,
  kBeta,
  kPointwise2,
  kPointwise2Bias,
  kNumConvInputs
};

struct ConvolutionState {
  std::vector<int64_t> lengths;
  int64_t time = 0, dim = 0, taps = 0, left = 0;
  rows::Dropout dropout;
  torch::ScalarType type = torch::kFloat32;
  bool batch_statistics = false;
  double count = 0.0;                      // rows behind the statistics, over all ranks
  task::Collective* collective = nullptr;  // of the trainer; outlives the graph
  bool counts = true;                      // false: the statistics are the others' alone
};

// Zero frames past each clip's length.
void clear_padding(const ConvolutionState& s, torch::Tensor& x) {
  for (size_t b = 0; b < s.lengths.size(); ++b) {
    const int64_t first = static_cast<int64_t>(b) * s.time + s.lengths[b], last = static_cast<int64_t>(b + 1) * s.time;
    if (first < last) std::memset(row(x, first), 0, static_cast<size_t>((last - first) * s.dim) * sizeof(float));
  }
}

// Calls work(clip, first frame, last frame) in parallel; clips are cut so that one long clip still uses all threads.
template <class Work>
void for_frames(const ConvolutionState& s, Work work) {
  constexpr int64_t kFrames = 64;
  const int64_t pieces = (s.time + kFrames - 1) / kFrames;
  at::parallel_for(0, static_cast<int64_t>(s.lengths.size()) * pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      work(i / pieces, i % pieces * kFrames, std::min(s.time, (i % pieces + 1) * kFrames));
  });
}

torch::Tensor taps_by_channel(const torch::Tensor& weight) {
  return weight.detach().squeeze(1).t().contiguous();
}  // [taps][dim]

struct ConvolutionBackward : HandNode {
  ConvolutionState state;
  NormInput norm;
  torch::Tensor channel_mean, channel_rstd;
  KeptRows kept_gate, kept_depthwise;
  void release_intermediates() override {
    norm.reset();
    for (torch::Tensor* t : {&channel_mean, &channel_rstd}) t->reset();
    kept_gate.reset();
    kept_depthwise.reset();
  }
  std::string name() const override { return "ConvolutionBackward"; }
  variable_list apply(variable_list&& grads) override;
};

variable_list ConvolutionBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNumConvInputs);
  if (!grads[0].defined()) return out;
  const ConvolutionState& s = state;
  const RowMatrix g(grads[0]);
  const torch::Tensor r = NormInput::source(input(kConvR));
  const int64_t d = s.dim;
  const torch::Tensor gamma = input(kGamma), beta = input(kBeta), norm_weight = input(kConvNormWeight),
                      norm_bias = input(kConvNormBias);
  const torch::Tensor w1 = input(kPointwise1).reshape({2 * d, d}).contiguous(),
                      w2 = input(kPointwise2).reshape({d, d}).contiguous();
  const torch::Tensor scale = gamma * channel_rstd, shift = beta - channel_mean * scale,
                      taps = taps_by_channel(input(kDepthwise));
  const GemmOperand operand1(w1, s.type, GemmUse::kNn), operand2(w2, s.type, GemmUse::kNn);
  torch::Tensor gy = torch::empty({g.rows, d}), activation = torch::empty({g.rows, d}), gn = torch::empty({g.rows, d});
  ColumnSums bias2(d), g_sum(d), gx_sum(d);
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    std::vector<uint16_t> words;
    std::vector<float> widened;
    const rows::Keep keep = s.dropout.rows(begin, end, d, words);
    rows::scaled_drop(g.row(begin), keep, 1.0f, (end - begin) * d, row(gy, begin));
    rows::column_sums(row(gy, begin), end - begin, d, bias2.local());
    TileGemm(s.type).nn(end - begin, d, d, row(gy, begin), d, operand2, 0.0f, row(gn, begin), d);
    rows::affine_swish_backward(row(gn, begin), kept_depthwise.rows(begin, end, widened), values(scale), values(shift),
                                values(channel_mean), values(channel_rstd), end - begin, d, row(activation, begin),
                                g_sum.local(), gx_sum.local());
  });
  out[kPointwise2] = parallel_tn(gy, activation, s.type).view_as(input(kPointwise2));
  if (wants(kPointwise2Bias)) out[kPointwise2Bias] = bias2.total();
  const torch::Tensor beta_grad = g_sum.total(), gamma_grad = gx_sum.total();
  out[kBeta] = beta_grad;
  out[kGamma] = gamma_grad;
  torch::Tensor mean_g = torch::zeros({d}), mean_gx = torch::zeros({d});
  if (s.batch_statistics) {
    torch::Tensor sums = torch::cat({beta_grad, gamma_grad});
    if (s.collective != nullptr && s.collective->world_size() > 1) sums = s.collective->all_reduce_sum(sums);
    if (!s.counts && s.collective != nullptr) sums.zero_();  // others' rows: they do not depend on these
    mean_g = sums.narrow(0, 0, d) / s.count;
    mean_gx = sums.narrow(0, d, d) / s.count;
  }
  // Through BatchNorm in place, then the depthwise layer and the GLU.
  torch::Tensor glu_out = activation;  // its own use is over
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    std::vector<float> widened;
    rows::batch_norm_backward(row(gn, begin), kept_depthwise.rows(begin, end, widened), values(channel_mean),
                              values(channel_rstd), values(scale), values(mean_g), values(mean_gx), end - begin, d);
    rows::glu(kept_gate.rows(begin, end, widened), end - begin, d, row(glu_out, begin));
  });
  clear_padding(s, glu_out);
  torch::Tensor g_gate = torch::empty({g.rows, 2 * d});
  ColumnSums taps_sum(s.taps * d), depthwise_bias(d), bias1(2 * d), norm_w(d), norm_b(d);
  for_frames(s, [&](int64_t b, int64_t first, int64_t last) {
    const int64_t base = b * s.time, length = s.lengths[static_cast<size_t>(b)];
    std::vector<float> gm(static_cast<size_t>(d)), widened;
    for (int64_t t = first; t < last; ++t) {
      if (t >= length) {
        std::memset(row(g_gate, base + t), 0, static_cast<size_t>(2 * d) * sizeof(float));
        continue;
      }
      rows::depthwise_frame_backward(row(gn, base), s.time, t, s.left, s.taps, values(taps), d, gm.data());
      rows::glu_backward(gm.data(), kept_gate.rows(base + t, base + t + 1, widened), 1, d, row(g_gate, base + t));
    }
    // Weight sums of output frames [first, last): shift the clip so that frame `first` is its start.
    rows::depthwise_weight_sums(row(gn, base + first), row(glu_out, base) + first * d, last - first, length - first,
                                s.left, s.taps, d, taps_sum.local(), /*frames_before=*/first);
    rows::column_sums(row(gn, base + first), last - first, d, depthwise_bias.local());
  });
  torch::Tensor x = gy;  // its own use is over
  torch::Tensor gr = torch::empty(g.tensor.sizes());
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    std::vector<float> gx(static_cast<size_t>(count * d)), unused(static_cast<size_t>(2 * count)), centred;
    rows::column_sums(row(g_gate, begin), count, 2 * d, bias1.local());
    TileGemm(s.type).nn(count, d, 2 * d, row(g_gate, begin), 2 * d, operand1, 0.0f, gx.data(), d);
    const float* tile_r = norm.rows(r, begin, end, centred);
    rows::layer_norm(tile_r, count, d, values(norm_weight), values(norm_bias), row(x, begin), unused.data(),
                     unused.data() + count);
    rows::layer_norm_backward(gx.data(), tile_r, norm.mean(begin), norm.rstd(begin), values(norm_weight), g.row(begin),
                              count, d, row(gr, begin, d), norm_w.local(), norm_b.local());
  });
  out[kConvR] = gr;
  out[kConvNormWeight] = norm_w.total();
  out[kConvNormBias] = norm_b.total();
  out[kPointwise1] = parallel_tn(g_gate, x, s.type).view_as(input(kPointwise1));
  if (wants(kPointwise1Bias)) out[kPointwise1Bias] = bias1.total();
  out[kDepthwise] = taps_sum.total().view({s.taps, d}).t().reshape({d, 1, s.taps});
  if (wants(kDepthwiseBias)) out[kDepthwiseBias] = depthwise_bias.total();
  return out;
}

// Mean and biased variance of the columns, over all ranks; two passes, as the difference of squares would cancel.
std::pair<torch::Tensor, torch::Tensor> channel_statistics(ConvolutionState& s, const torch::Tensor& y) {
  const auto reduce = [&](ColumnSums& sums) {
    torch::Tensor total = sums.total();
    return s.collective != nullptr && s.collective->world_size() > 1 ? s.collective->all_reduce_sum(total) : total;
  };
  ColumnSums sums(s.dim + 1), squares(s.dim);
  for_row_tiles(y.size(0), kRowTile, [&](int64_t begin, int64_t end) {
    rows::column_sums(row(y, begin), end - begin, s.dim, sums.local());
    sums.local()[s.dim] += static_cast<float>(end - begin);
  });
  const torch::Tensor total = reduce(sums);
  s.count = std::max(1.0, total[s.dim].item<double>());  // 0: every rank has only a stand-in
  const torch::Tensor mean = total.narrow(0, 0, s.dim) / s.count;
  for_row_tiles(y.size(0), kRowTile, [&](int64_t begin, int64_t end) {
    rows::column_squares(row(y, begin), values(mean), end - begin, s.dim, squares.local());
  });
  return {mean, reduce(squares) / s.count};
}

}  // namespace

torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass) {
  const std::vector<torch::Tensor> inputs{r,
                                          norm->weight,
                                          norm->bias,
                                          conv->pointwise_conv1->weight,
                                          conv->pointwise_conv1->bias,
                                          conv->depthwise_conv->weight,
                                          conv->depthwise_conv->bias,
                                          conv->batch_norm->weight,
                                          conv->batch_norm->bias,
                                          conv->pointwise_conv2->weight,
                                          conv->pointwise_conv2->bias};
  const bool rounded = bf16_products(gemm_type());
  const auto node = make_node<ConvolutionBackward>(inputs, /*let_go=*/rounded ? 1 : 0);
  ConvolutionState s;
  s.lengths = pass.lengths;
  s.time = r.size(1);
  s.dim = r.size(2);
  s.taps = conv->depthwise_conv->weight.size(2);
  s.left = conv->left_context;
  s.dropout = rows::Dropout(*pass.ctx, dropout, place, s.time);
  s.type = gemm_type();
  s.batch_statistics = pass.ctx->training();
  s.collective = pass.ctx->collective;
  s.counts = pass.ctx->counts;
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const RowMatrix in(r);
    const int64_t d = s.dim;
    const torch::Tensor w1 = conv->pointwise_conv1->weight.reshape({2 * d, d}).contiguous();
    const torch::Tensor w2 = conv->pointwise_conv2->weight.reshape({d, d}).contiguous(),
                        taps = taps_by_channel(conv->depthwise_conv->weight);
    const GemmOperand operand1(w1, s.type, GemmUse::kNt), operand2(w2, s.type, GemmUse::kNt);
    NormInput norm_in(in.rows, d, node && rounded);
    torch::Tensor gate = torch::empty({in.rows, 2 * d}), glu_out = torch::empty({in.rows, d}),
                  y = torch::empty({in.rows, d});
    for_row_tiles(in.rows, kRowTile, [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      std::vector<float> x(static_cast<size_t>(count * d));
      rows::layer_norm(in.row(begin), count, d, values(norm->weight), values(norm->bias), x.data(), norm_in.mean(begin),
                       norm_in.rstd(begin));
      norm_in.keep(in.row(begin), begin, end);
      TileGemm(s.type).nt(count, 2 * d, d, x.data(), d, operand1, 0.0f, row(gate, begin), 2 * d);
      rows::bias_glu(row(gate, begin), values(conv->pointwise_conv1->bias), count, d, row(glu_out, begin));
    });
    for_frames(s, [&](int64_t b, int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        rows::depthwise_frame(row(glu_out, b * s.time), s.lengths[static_cast<size_t>(b)], t, s.left, s.taps,
                              values(taps), values(conv->depthwise_conv->bias), d, row(y, b * s.time + t));
    });
    torch::Tensor channel_mean = conv->batch_norm->running_mean, variance = conv->batch_norm->running_var;
    if (s.batch_statistics) {
      std::tie(channel_mean, variance) = channel_statistics(s, y);
      conv->batch_norm->defer(channel_mean, variance, s.count, *pass.ctx);
    }
    const torch::Tensor channel_rstd = torch::rsqrt(variance + conv->batch_norm->eps);
    const torch::Tensor scale = conv->batch_norm->weight * channel_rstd,
                        shift = conv->batch_norm->bias - channel_mean * scale;
    out = torch::empty(r.sizes());
    for_row_tiles(in.rows, kRowTile, [&](int64_t begin, int64_t end) {
      const int64_t count = end - begin;
      std::vector<float> activation(static_cast<size_t>(count * d)), product(static_cast<size_t>(count * d));
      std::vector<uint16_t> words;
      rows::affine_swish(row(y, begin), values(scale), values(shift), count, d, activation.data());
      TileGemm(s.type).nt(count, d, d, activation.data(), d, operand2, 0.0f, product.data(), d);
      const rows::Keep keep = s.dropout.rows(begin, end, d, words);
      rows::residual_drop(in.row(begin), product.data(), values(conv->pointwise_conv2->bias), keep, 1.0f, count, d,
                          row(out, begin, d));
    });
    if (node) {
      node->kept_gate = KeptRows(gate, s.type);
      node->kept_depthwise = KeptRows(y, s.type);
      node->state = std::move(s);
      node->norm = norm_in;
      node->channel_mean = channel_mean.clone();
      node->channel_rstd = channel_rstd;
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::speech::fused
