// The parts of a layer as plain tensor operations: the reference of the fused paths, and what runs on other devices.
#include <cmath>

#include "models/speech_ssl/conformer.h"

namespace redline::models::speech::plain {

torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass) {
  torch::Tensor h = torch::silu(torch::linear(norm->forward(r), ff->linear1->weight, ff->linear1->bias));
  h = pass.ctx->dropout(h, dropout, place + ".hidden");
  h = torch::linear(h, ff->linear2->weight, ff->linear2->bias);
  return r + pass.ctx->dropout(h, dropout, place) * factor;
}

namespace {

// BD[i, j] -> BD[i, T - 1 - i + j] (Transformer-XL, arXiv 1901.02860, appendix B): pad one column, fold, drop one row.
torch::Tensor relative_shift(const torch::Tensor& bd) {
  const int64_t batch = bd.size(0), heads = bd.size(1), time = bd.size(2), positions = bd.size(3);
  const torch::Tensor folded = torch::constant_pad_nd(bd, {1, 0}).view({batch, heads, positions + 1, time});
  return folded.slice(2, 1).reshape({batch, heads, time, positions}).slice(3, 0, time);
}

}  // namespace

torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& a, const torch::Tensor& r, double dropout,
                             double dropout_att, const std::string& place, const EncoderPass& pass) {
  const int64_t batch = r.size(0), time = r.size(1), dim = r.size(2), per_head = dim / a->heads;
  const torch::Tensor x = norm->forward(r);
  const auto split = [&](const Affine& linear) {
    return torch::linear(x, linear->weight, linear->bias).view({batch, time, a->heads, per_head}).to(torch::kFloat32);
  };
  const torch::Tensor q = split(a->linear_q), k = split(a->linear_k).transpose(1, 2),
                      v = split(a->linear_v).transpose(1, 2);
  const torch::Tensor p =
      torch::linear(pass.positions_PD, a->linear_pos->weight).view({1, -1, a->heads, per_head}).transpose(1, 2);
  const torch::Tensor ac = torch::matmul((q + a->pos_bias_u).transpose(1, 2), k.transpose(-2, -1));
  const torch::Tensor bd = relative_shift(torch::matmul((q + a->pos_bias_v).transpose(1, 2), p.transpose(-2, -1)));
  const torch::Tensor hidden = pass.hidden_mask(time);
  torch::Tensor scores = (ac + bd) / std::sqrt(static_cast<double>(per_head));
  scores = torch::softmax(scores.masked_fill(hidden, -10000.0), -1).masked_fill(hidden, 0.0);
  scores = pass.ctx->dropout(scores, dropout_att, place + ".attention", {2, 3});
  const torch::Tensor out = torch::matmul(scores, v).transpose(1, 2).reshape({batch, time, dim});
  return r + pass.ctx->dropout(torch::linear(out, a->linear_out->weight, a->linear_out->bias), dropout, place);
}

torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass) {
  torch::Tensor x = norm->forward(r).transpose(1, 2);
  x = torch::glu(torch::conv1d(x, conv->pointwise_conv1->weight, conv->pointwise_conv1->bias), 1);
  x = x.masked_fill(~pass.valid_BT.unsqueeze(1), 0.0);
  const int64_t kernel = conv->depthwise_conv->weight.size(2);
  x = torch::constant_pad_nd(x, {conv->left_context, kernel - 1 - conv->left_context});
  x = torch::conv1d(x, conv->depthwise_conv->weight, conv->depthwise_conv->bias, /*stride=*/1,
                    /*padding=*/at::IntArrayRef{0}, /*dilation=*/1, /*groups=*/r.size(2));
  x = torch::silu(conv->batch_norm->forward(x.transpose(1, 2), *pass.ctx)).transpose(1, 2);
  x = torch::conv1d(x, conv->pointwise_conv2->weight, conv->pointwise_conv2->bias).transpose(1, 2);
  return r + pass.ctx->dropout(x, dropout, place);
}

}  // namespace redline::models::speech::plain
