// Autograd around the attention kernel, and the padded reference beside it.
#include "models/layers/packed_attention.h"

#include <cmath>

#include "core/check.h"
#include "models/layers/attention_kernel.h"
#include "models/layers/gemm.h"
#include "models/layers/gemm_bf16.h"
#include "models/layers/simd.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct AttentionState : torch::CustomClassHolder {
  AttentionShape shape;
};

template <class T>
HeadRows<const T> columns_of(const torch::Tensor& x, int64_t block, int64_t width) {
  return {x.const_data_ptr<T>() + block * width, x.size(1)};
}
template <class T>
HeadRows<T> mutable_columns_of(torch::Tensor& x, int64_t block, int64_t width) {
  return {x.mutable_data_ptr<T>() + block * width, x.size(1)};
}

// Self-attention has all three in `q` ([N, 3C]) and no `kv`; pooling has q [B, C] and kv [N, 2C].
struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& q_in,
                               const std::optional<torch::Tensor>& kv_in,
                               const c10::intrusive_ptr<AttentionState>& state) {
    const torch::Tensor q = q_in.contiguous();
    const torch::Tensor kv = kv_in ? kv_in->contiguous() : q;
    const AttentionShape& shape = state->shape;
    const int64_t width = shape.num_heads * shape.head_dim, first = kv_in ? 0 : 1;
    torch::Tensor out = torch::empty({q.size(0), width}, q.options());
    torch::Tensor log_sum = torch::empty({q.size(0), shape.num_heads}, q.options());
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "packed_attention", [&] {
      attention_forward<scalar_t>(shape, columns_of<scalar_t>(q, 0, width), columns_of<scalar_t>(kv, first, width),
                                  columns_of<scalar_t>(kv, first + 1, width),
                                  mutable_columns_of<scalar_t>(out, 0, width), log_sum.mutable_data_ptr<scalar_t>());
    });
    const auto kept = [&](const torch::Tensor& x) { return shape.bf16 ? x.to(torch::kBFloat16) : x; };
    ctx->save_for_backward(kv_in ? variable_list{kept(q), kept(kv), log_sum} : variable_list{kept(q), log_sum});
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const bool self = saved.size() == 2;
    const torch::Tensor& log_sum = saved.back();
    const torch::Tensor q = saved[0].to(log_sum.scalar_type()), kv = self ? q : saved[1].to(log_sum.scalar_type());
    const auto& shape = static_cast<AttentionState*>(ctx->saved_data["state"].toCapsule().get())->shape;
    const int64_t width = shape.num_heads * shape.head_dim, first = self ? 1 : 0;
    const torch::Tensor grad_out = grads[0].contiguous();
    torch::Tensor grad_q = torch::empty_like(q);
    torch::Tensor grad_kv = self ? grad_q : torch::empty_like(kv);
    AT_DISPATCH_FLOATING_TYPES(q.scalar_type(), "packed_attention_backward", [&] {
      attention_backward<scalar_t>(shape, columns_of<scalar_t>(q, 0, width), columns_of<scalar_t>(kv, first, width),
                                   columns_of<scalar_t>(kv, first + 1, width), columns_of<scalar_t>(grad_out, 0, width),
                                   log_sum.const_data_ptr<scalar_t>(), mutable_columns_of<scalar_t>(grad_q, 0, width),
                                   mutable_columns_of<scalar_t>(grad_kv, first, width),
                                   mutable_columns_of<scalar_t>(grad_kv, first + 1, width));
    });
    return {grad_q, self ? torch::Tensor() : grad_kv, torch::Tensor()};
  }
};

bool attention_kernel_fits(const torch::Tensor& x, int64_t head_dim) {
  if (!x.device().is_cpu() || x.unsafeGetTensorImpl()->is_python_dispatch()) return false;
  if (x.scalar_type() == torch::kFloat32) return head_dim % 8 == 0;
  return x.scalar_type() == torch::kFloat64 && head_dim % 4 == 0;
}

torch::Tensor at_least_float(const torch::Tensor& x) {
  return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
}

c10::intrusive_ptr<AttentionState> make_state(const Rows& queries, const Rows& keys, int64_t width,
                                              torch::ScalarType type, const AttentionOptions& options) {
  REDLINE_CHECK(width % options.num_heads == 0, "the model's width is a multiple of its heads");
  auto state = c10::make_intrusive<AttentionState>();
  state->shape = {queries,
                  keys,
                  options.num_heads,
                  width / options.num_heads,
                  options.causal,
                  options.dropout,
                  type == torch::kFloat32 && bf16_products(gemm_type())};
  return state;
}

}  // namespace

torch::Tensor packed_self_attention(const torch::Tensor& qkv_in, const Rows& rows, const AttentionOptions& options) {
  const torch::Tensor qkv = at_least_float(qkv_in);
  const int64_t width = qkv.size(1) / 3;
  if (attention_kernel_fits(qkv, width / options.num_heads))
    return AttentionFunction::apply(qkv, std::optional<torch::Tensor>(),
                                    make_state(rows, rows, width, qkv.scalar_type(), options));
  const auto parts = qkv.chunk(3, 1);
  return packed_attention_plain(parts[0], parts[1], parts[2], rows, rows, options);
}

torch::Tensor packed_last_attention(const torch::Tensor& q_in, const torch::Tensor& kv_in, const Rows& queries,
                                    const Rows& keys, const AttentionOptions& options) {
  const torch::Tensor q = at_least_float(q_in), kv = at_least_float(kv_in);
  if (attention_kernel_fits(q, q.size(1) / options.num_heads))
    return AttentionFunction::apply(q, std::optional<torch::Tensor>(kv),
                                    make_state(queries, keys, q.size(1), q.scalar_type(), options));
  const auto parts = kv.chunk(2, 1);
  return packed_attention_plain(q, parts[0], parts[1], queries, keys, options);
}

torch::Tensor packed_attention_plain(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                                     const Rows& queries, const Rows& keys, const AttentionOptions& options) {
  const int64_t batch = queries->num_sequences(), heads = options.num_heads, dim = q.size(1) / heads;
  const auto split = [&](const torch::Tensor& x, const Rows& rows) {  // [B, H, T, D]
    return unpack(x, *rows).view({batch, rows->longest(), heads, dim}).transpose(1, 2);
  };
  const torch::Tensor q_BHTD = split(q, queries), k_BHSD = split(k, keys), v_BHSD = split(v, keys);
  torch::Tensor visible = torch::zeros({batch, queries->longest(), keys->longest()}, torch::kBool);
  torch::Tensor mask = torch::ones({batch, heads, queries->longest(), simd::round_up(keys->longest(), 32)});
  auto seen = visible.accessor<bool, 3>();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t i = 0; i < queries->longest(); ++i) {
      const bool real = i < queries->length(b);
      const int64_t time = real ? queries->time[static_cast<size_t>(queries->offsets[static_cast<size_t>(b)] + i)] : 0;
      const int64_t count = real && options.causal ? time + 1 : std::max<int64_t>(1, keys->length(b));
      for (int64_t j = 0; j < count; ++j) seen[b][i][j] = true;  // padded queries see something: no NaN to mask
      if (!real || !options.dropout.active()) continue;
      for (int64_t h = 0; h < heads; ++h)
        fill_mask_plain(options.dropout, static_cast<uint64_t>(queries->sample_ids[static_cast<size_t>(b)]),
                        attention_element(h, time), keys->longest(), mask[b][h][i].mutable_data_ptr<float>());
    }
  visible = visible.unsqueeze(1).to(q.device());
  torch::Tensor out;
  if (!options.dropout.active()) {
    out = at::scaled_dot_product_attention(q_BHTD, k_BHSD, v_BHSD, visible);
  } else {
    torch::Tensor scores = q_BHTD.matmul(k_BHSD.transpose(2, 3)) / std::sqrt(static_cast<double>(dim));
    torch::Tensor weights = scores.masked_fill(visible.logical_not(), -INFINITY).softmax(-1);
    out = (weights * mask.narrow(3, 0, keys->longest()).to(q.options())).matmul(v_BHSD);
  }
  return pack(out.transpose(1, 2).reshape({batch, queries->longest(), heads * dim}), *queries);
}

}  // namespace redline::models
