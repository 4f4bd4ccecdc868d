// Relative-position attention as one autograd node. Rows go through LayerNorm and the projections in tiles; then each
// (clip, head) is one task that never leaves its thread's cache: both score products, the shift (an offset into the
// row, never a copy), softmax over the visible keys only, dropout, and the product with the values. Only the attention
// weights are kept, packed by true length.
#include <ATen/Parallel.h>

#include <cmath>
#include <cstring>

#include "models/layers/gemm.h"
#include "models/layers/hand_node.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_linear.h"
#include "models/speech_ssl/fused_parts.h"
#include "models/speech_ssl/row_kernels.h"

namespace redline::models::speech::fused {

namespace {

using torch::autograd::variable_list;

enum AttentionInput : size_t {
  kInR,
  kInNormWeight,
  kInNormBias,
  kInQ,
  kInQBias,
  kInK,
  kInKBias,
  kInV,
  kInVBias,
  kInOut,
  kInOutBias,
  kInPos,
  kInU,
  kInBiasV,
  kInPositions,
  kNumAttentionInputs
};

struct AttentionState {
  EncoderPass pass;  // lengths and contexts; its ctx is not used in backward
  int64_t batch = 0, time = 0, dim = 0, heads = 0, per_head = 0;
  rows::Dropout attention_dropout, out_dropout;
  torch::ScalarType type = torch::kFloat32;
  std::vector<int64_t> first;  // where a clip's weights start in the packed attention weights

  float scale() const { return 1.0f / std::sqrt(static_cast<float>(per_head)); }
  int64_t length(int64_t b) const { return pass.lengths[static_cast<size_t>(b)]; }
  int64_t weights_at(int64_t b, int64_t h) const { return first[static_cast<size_t>(b)] + h * length(b) * length(b); }
  // Dropout of the weights of row i of head h.
  rows::Keep keep(int64_t b, int64_t h, int64_t i, std::vector<uint16_t>& scratch) const {
    return attention_dropout.run(b, task::attention_element(h, i), length(b), scratch);
  }
};

// Products of activations in the pass's precision.
using ActivationProduct = void (*)(int64_t, int64_t, int64_t, const float*, int64_t, const float*, int64_t, float,
                                   float*, int64_t);
struct HeadProducts {
  explicit HeadProducts(torch::ScalarType type)
      : nt(bf16_products(type) ? bf16_nt : float_nt),
        nn(bf16_products(type) ? bf16_nn : float_nn),
        tn(bf16_products(type) ? bf16_weight_grad : float_tn) {}
  ActivationProduct nt, nn, tn;
};

// The operands of one (clip, head) and one thread's buffers.
struct HeadTask {
  const AttentionState& s;
  int64_t b, h, length, positions;  // positions = 2 length - 1
  const float *q, *k, *v, *p;  // q, k, v with row distance 3 dim; p with dim, starting at relative position length - 1
  std::vector<float>&qu, &qv;

  HeadTask(const AttentionState& state, int64_t task, const torch::Tensor& qkv, const torch::Tensor& projected,
           const float* u, const float* bias_v, std::vector<float>& qu_buffer, std::vector<float>& qv_buffer)
      : s(state),
        b(task / state.heads),
        h(task % state.heads),
        length(state.length(b)),
        positions(2 * length - 1),
        qu(qu_buffer),
        qv(qv_buffer) {
    const int64_t dk = s.per_head;
    q = row(qkv, b * s.time) + h * dk;
    k = q + s.dim;
    v = k + s.dim;
    p = row(projected, s.time - length) + h * dk;
    qu.resize(static_cast<size_t>(length * dk));
    qv.resize(static_cast<size_t>(length * dk));
    for (int64_t i = 0; i < length; ++i)
      for (int64_t c = 0; c < dk; ++c) {
        const float value = q[i * 3 * s.dim + c];
        qu[static_cast<size_t>(i * dk + c)] = value + u[h * dk + c];
        qv[static_cast<size_t>(i * dk + c)] = value + bias_v[h * dk + c];
      }
  }
};

void attention_weights(const HeadTask& t, std::vector<float>& ac, std::vector<float>& bd, float* weights) {
  const AttentionState& s = t.s;
  const HeadProducts products(s.type);
  const int64_t n = t.length, dk = s.per_head;
  ac.resize(static_cast<size_t>(n * n));
  bd.resize(static_cast<size_t>(n * t.positions));
  products.nt(n, n, dk, t.qu.data(), dk, t.k, 3 * s.dim, 0.0f, ac.data(), n);
  products.nt(n, t.positions, dk, t.qv.data(), dk, t.p, s.dim, 0.0f, bd.data(), t.positions);
  for (int64_t i = 0; i < n; ++i) {
    const auto [first, last] = s.pass.visible(i, n);
    float* out = weights + i * n;
    std::fill(out, out + first, 0.0f);
    std::fill(out + last, out + n, 0.0f);
    if (first < last)
      rows::softmax_row(ac.data() + i * n + first, bd.data() + i * t.positions + n - 1 - i + first, s.scale(),
                        last - first, out + first);
  }
}

// weights after dropout; the same memory when there is none.
const float* dropped_weights(const HeadTask& t, const float* weights, std::vector<float>& buffer,
                             std::vector<uint16_t>& words) {
  if (!t.s.attention_dropout.on()) return weights;
  buffer.resize(static_cast<size_t>(t.length * t.length));
  for (int64_t i = 0; i < t.length; ++i)
    rows::drop_row(weights + i * t.length, t.s.keep(t.b, t.h, i, words), t.length, buffer.data() + i * t.length);
  return buffer.data();
}

struct AttentionBackward : HandNode {
  AttentionState state;
  NormInput norm;
  torch::Tensor projected;
  KeptRows kept_qkv, weights, context;
  void release_intermediates() override {
    norm.reset();
    projected.reset();
    for (KeptRows* kept : {&kept_qkv, &weights, &context}) kept->reset();
  }
  std::string name() const override { return "AttentionBackward"; }
  variable_list apply(variable_list&& grads) override;

 private:
  void heads_backward(const torch::Tensor& g_context, torch::Tensor& g_qkv, torch::Tensor& g_projected, ColumnSums& g_u,
                      ColumnSums& g_v) const;
};

struct HeadBuffers {
  std::vector<float> qu, qv, weights, dropped, ds, dbd, dqu, dqv;
  std::vector<uint16_t> words;
};

// ds: gradient at the scaled scores, from the gradient at the context.
void score_gradient(const HeadTask& t, const float* weights, const float* g_context, HeadBuffers& buffers) {
  const AttentionState& s = t.s;
  const HeadProducts products(s.type);
  const int64_t n = t.length;
  buffers.ds.resize(static_cast<size_t>(n * n));
  products.nt(n, n, s.per_head, g_context, s.dim, t.v, 3 * s.dim, 0.0f, buffers.ds.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    float* d = buffers.ds.data() + i * n;
    if (s.attention_dropout.on()) rows::drop_row(d, s.keep(t.b, t.h, i, buffers.words), n, d);
    rows::softmax_row_backward(d, weights + i * n, s.scale(), n);  // hidden keys have weight 0, so their gradient is 0
  }
}

void AttentionBackward::heads_backward(const torch::Tensor& g_context, torch::Tensor& g_qkv, torch::Tensor& g_projected,
                                       ColumnSums& g_u, ColumnSums& g_v) const {
  const torch::Tensor u = input(kInU), bias_v = input(kInBiasV), qkv = kept_qkv.floats();
  const int64_t d = state.dim, dk = state.per_head, all = (2 * state.time - 1) * d;
  torch::Tensor partial = torch::zeros({at::get_num_threads(), all});
  const HeadProducts products(state.type);
  at::parallel_for(0, state.batch * state.heads, 1, [&](int64_t begin, int64_t end) {
    HeadBuffers buffers;
    float* g_p = partial.mutable_data_ptr<float>() + at::get_thread_num() * all;
    for (int64_t task = begin; task < end; ++task) {
      const HeadTask t(state, task, qkv, projected, values(u), values(bias_v), buffers.qu, buffers.qv);
      const int64_t n = t.length;
      if (n == 0) continue;
      const float* weights_here = weights.run(state.weights_at(t.b, t.h), n * n, buffers.weights);
      const float* gc = row(g_context, t.b * state.time) + t.h * dk;
      float *gq = row(g_qkv, t.b * state.time) + t.h * dk, *gk = gq + d, *gv = gk + d;
      const float* dropped = dropped_weights(t, weights_here, buffers.dropped, buffers.words);
      products.tn(n, dk, n, dropped, n, gc, d, 0.0f, gv, 3 * d);
      score_gradient(t, weights_here, gc, buffers);
      buffers.dqu.resize(static_cast<size_t>(n * dk));
      buffers.dqv.resize(static_cast<size_t>(n * dk));
      products.nn(n, dk, n, buffers.ds.data(), n, t.k, 3 * d, 0.0f, buffers.dqu.data(), dk);
      products.tn(n, dk, n, buffers.ds.data(), n, t.qu.data(), dk, 0.0f, gk, 3 * d);
      buffers.dbd.assign(static_cast<size_t>(n * t.positions), 0.0f);
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(buffers.dbd.data() + i * t.positions + n - 1 - i, buffers.ds.data() + i * n,
                    static_cast<size_t>(n) * sizeof(float));
      products.nn(n, dk, t.positions, buffers.dbd.data(), t.positions, t.p, d, 0.0f, buffers.dqv.data(), dk);
      products.tn(t.positions, dk, n, buffers.dbd.data(), t.positions, t.qv.data(), dk, 1.0f,
                  g_p + (state.time - n) * d + t.h * dk, d);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < dk; ++c)
          gq[i * 3 * d + c] =
              buffers.dqu[static_cast<size_t>(i * dk + c)] + buffers.dqv[static_cast<size_t>(i * dk + c)];
      rows::column_sums(buffers.dqu.data(), n, dk, g_u.local() + t.h * dk);
      rows::column_sums(buffers.dqv.data(), n, dk, g_v.local() + t.h * dk);
    }
  });
  g_projected = partial.sum(0).view({2 * state.time - 1, d});
}

variable_list AttentionBackward::apply(variable_list&& grads) {
  const at::NoGradGuard no_grad;
  variable_list out(kNumAttentionInputs);
  if (!grads[0].defined()) return out;
  const RowMatrix g(grads[0]);
  const torch::Tensor r = NormInput::source(input(kInR));
  const int64_t d = state.dim;
  const torch::Tensor w_out = input(kInOut).contiguous(), norm_weight = input(kInNormWeight),
                      norm_bias = input(kInNormBias);
  const GemmOperand out_operand(w_out, state.type, GemmUse::kNn);
  torch::Tensor gy = torch::empty({g.rows, d}), g_context = torch::empty({g.rows, d}),
                g_qkv = torch::zeros({g.rows, 3 * d}), g_projected;
  ColumnSums out_bias(d), u_sum(d), v_sum(d), qkv_bias(3 * d), norm_w(d), norm_b(d);
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    std::vector<uint16_t> words;
    const rows::Keep keep = state.out_dropout.rows(begin, end, d, words);
    rows::scaled_drop(g.row(begin), keep, 1.0f, (end - begin) * d, row(gy, begin));
    rows::column_sums(row(gy, begin), end - begin, d, out_bias.local());
    TileGemm(state.type).nn(end - begin, d, d, row(gy, begin), d, out_operand, 0.0f, row(g_context, begin), d);
  });
  out[kInOut] = parallel_tn(gy, context.tensor(), state.type);
  heads_backward(g_context, g_qkv, g_projected, u_sum, v_sum);
  torch::Tensor x = gy;  // its own use is over
  const torch::Tensor qkv_weight = torch::cat({input(kInQ), input(kInK), input(kInV)});
  const GemmOperand qkv_operand(qkv_weight, state.type, GemmUse::kNn);
  torch::Tensor gr = torch::empty(g.tensor.sizes());
  for_row_tiles(g.rows, kRowTile, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    std::vector<float> gx(static_cast<size_t>(count * d)), unused(static_cast<size_t>(2 * count)), centred;
    rows::column_sums(row(g_qkv, begin), count, 3 * d, qkv_bias.local());
    TileGemm(state.type).nn(count, d, 3 * d, row(g_qkv, begin), 3 * d, qkv_operand, 0.0f, gx.data(), d);
    const float* tile_r = norm.rows(r, begin, end, centred);
    rows::layer_norm(tile_r, count, d, values(norm_weight), values(norm_bias), row(x, begin), unused.data(),
                     unused.data() + count);
    rows::layer_norm_backward(gx.data(), tile_r, norm.mean(begin), norm.rstd(begin), values(norm_weight), g.row(begin),
                              count, d, row(gr, begin, d), norm_w.local(), norm_b.local());
  });
  out[kInR] = gr;
  out[kInNormWeight] = norm_w.total();
  out[kInNormBias] = norm_b.total();
  const torch::Tensor g_weight = parallel_tn(g_qkv, x, state.type), g_bias = qkv_bias.total();
  for (size_t i = 0; i < 3; ++i) {
    const auto first = static_cast<int64_t>(i) * d;
    out[kInQ + 2 * i] = g_weight.narrow(0, first, d);
    if (wants(kInQBias + 2 * i)) out[kInQBias + 2 * i] = g_bias.narrow(0, first, d);
  }
  if (wants(kInOutBias)) out[kInOutBias] = out_bias.total();
  const torch::Tensor positions = input(kInPositions);
  out[kInPos] = bf16_products(state.type) ? bf16_parallel_tn(g_projected, positions.contiguous())
                                          : torch::mm(g_projected.t(), positions);
  out[kInU] = u_sum.total().view({state.heads, state.per_head});
  out[kInBiasV] = v_sum.total().view({state.heads, state.per_head});
  return out;
}

void project(const RowMatrix& in, const LayerNorm& norm, const SelfAttention& a, const AttentionState& s,
             NormInput& norm_in, torch::Tensor& qkv) {
  const int64_t d = s.dim;
  const torch::Tensor weight = torch::cat({a->linear_q->weight, a->linear_k->weight, a->linear_v->weight});
  const torch::Tensor bias = a->linear_q->bias.defined()
                                 ? torch::cat({a->linear_q->bias, a->linear_k->bias, a->linear_v->bias})
                                 : torch::zeros({3 * d});
  const GemmOperand operand(weight, s.type, GemmUse::kNt);
  for_row_tiles(in.rows, kRowTile, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    std::vector<float> x(static_cast<size_t>(count * d));
    rows::layer_norm(in.row(begin), count, d, values(norm->weight), values(norm->bias), x.data(), norm_in.mean(begin),
                     norm_in.rstd(begin));
    norm_in.keep(in.row(begin), begin, end);
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(row(qkv, i), values(bias), static_cast<size_t>(3 * d) * sizeof(float));
    TileGemm(s.type).nt(count, 3 * d, d, x.data(), d, operand, 1.0f, row(qkv, begin), 3 * d);
  });
}

void attend(const AttentionState& s, const torch::Tensor& qkv, const torch::Tensor& projected, const SelfAttention& a,
            torch::Tensor& weights, torch::Tensor& context) {
  const HeadProducts products(s.type);
  at::parallel_for(0, s.batch * s.heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> qu, qv, ac, bd, dropped;
    std::vector<uint16_t> words;
    for (int64_t task = begin; task < end; ++task) {
      const HeadTask t(s, task, qkv, projected, values(a->pos_bias_u), values(a->pos_bias_v), qu, qv);
      if (t.length == 0) continue;
      float* here = weights.mutable_data_ptr<float>() + s.weights_at(t.b, t.h);
      attention_weights(t, ac, bd, here);
      products.nn(t.length, s.per_head, t.length, dropped_weights(t, here, dropped, words), t.length, t.v, 3 * s.dim,
                  0.0f, row(context, t.b * s.time) + t.h * s.per_head, s.dim);
    }
  });
}

}  // namespace

torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& a, const torch::Tensor& r, double dropout,
                             double dropout_att, const std::string& place, const EncoderPass& pass) {
  const std::vector<torch::Tensor> inputs{r,
                                          norm->weight,
                                          norm->bias,
                                          a->linear_q->weight,
                                          a->linear_q->bias,
                                          a->linear_k->weight,
                                          a->linear_k->bias,
                                          a->linear_v->weight,
                                          a->linear_v->bias,
                                          a->linear_out->weight,
                                          a->linear_out->bias,
                                          a->linear_pos->weight,
                                          a->pos_bias_u,
                                          a->pos_bias_v,
                                          pass.positions_PD};
  const auto node = make_node<AttentionBackward>(inputs, /*let_go=*/bf16_products(gemm_type()) ? 1 : 0);
  AttentionState s;
  s.pass = pass;
  s.batch = r.size(0);
  s.time = r.size(1);
  s.dim = r.size(2);
  s.heads = a->heads;
  s.per_head = s.dim / s.heads;
  s.attention_dropout = rows::Dropout(*pass.ctx, dropout_att, place + ".attention", s.time);
  s.out_dropout = rows::Dropout(*pass.ctx, dropout, place, s.time);
  s.type = gemm_type();
  torch::Tensor out;
  {
    const at::NoGradGuard no_grad;
    const RowMatrix in(r);
    s.first = {0};
    for (int64_t length : pass.lengths) s.first.push_back(s.first.back() + s.heads * length * length);
    NormInput norm_in(in.rows, s.dim, node && bf16_products(s.type));
    torch::Tensor qkv = torch::empty({in.rows, 3 * s.dim});
    torch::Tensor weights = torch::empty({s.first.back()}), context = torch::zeros({in.rows, s.dim});
    project(in, norm, a, s, norm_in, qkv);
    // Their number follows the longest clip: in bfloat16 no product that is compiled for its shape.
    const torch::Tensor projected = bf16_products(s.type)
                                        ? row_linear(pass.positions_PD, a->linear_pos->weight)
                                        : torch::mm(pass.positions_PD, a->linear_pos->weight.t()).to(torch::kFloat32);
    attend(s, qkv, projected, a, weights, context);
    out = torch::empty(r.sizes());
    const torch::Tensor w_out = a->linear_out->weight.contiguous();
    const GemmOperand operand(w_out, s.type, GemmUse::kNt);
    for_row_tiles(in.rows, kRowTile, [&](int64_t begin, int64_t end) {
      std::vector<float> y(static_cast<size_t>((end - begin) * s.dim));
      std::vector<uint16_t> words;
      TileGemm(s.type).nt(end - begin, s.dim, s.dim, row(context, begin), s.dim, operand, 0.0f, y.data(), s.dim);
      const rows::Keep keep = s.out_dropout.rows(begin, end, s.dim, words);
      rows::residual_drop(in.row(begin), y.data(), values(a->linear_out->bias), keep, 1.0f, end - begin, s.dim,
                          row(out, begin, s.dim));
    });
    if (node) {
      s.pass.ctx = nullptr;
      node->kept_qkv = KeptRows(qkv, s.type);
      node->weights = KeptRows(weights, s.type);
      node->context = KeptRows(context, s.type);
      node->state = std::move(s);
      node->norm = norm_in;
      node->projected = projected;
    }
  }
  attach(out, node);
  return out;
}

}  // namespace redline::models::speech::fused
