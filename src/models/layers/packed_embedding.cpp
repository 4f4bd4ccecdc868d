// Kernels of packed_embedding; position gradients (a learned table) are summed like the embedding's.
#include "models/layers/packed_embedding.h"

#include <cmath>

#include "core/check.h"
#include "models/layers/row_kernels.h"
#include "models/layers/simd.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct EmbeddingState : torch::CustomClassHolder {
  Rows rows;
  DropoutDraw dropout;
  double scale = 1.0;
};

template <class T>
void embedding_forward(const EmbeddingState& state, const torch::Tensor& table, const torch::Tensor& tokens,
                       const torch::Tensor& positions, const torch::Tensor& per_sequence, torch::Tensor& out) {
  const int64_t width = table.size(1);
  const PackedRows& rows = *state.rows;
  const T* tables = table.const_data_ptr<T>();
  const T* places = positions.defined() ? positions.const_data_ptr<T>() : nullptr;
  const T* extras = per_sequence.defined() ? per_sequence.const_data_ptr<T>() : nullptr;
  const int64_t* ids = tokens.const_data_ptr<int64_t>();
  T* to = out.mutable_data_ptr<T>();
  const auto scale = static_cast<T>(state.scale);
  for_each_row_block(rows.num_rows(), width, [&](int64_t begin, int64_t end, int64_t) {
    std::vector<float> mask(static_cast<size_t>(simd::round_up(width, 32)), 1.0f);
    for (int64_t n = begin; n < end; ++n) {
      const int64_t time = rows.time[static_cast<size_t>(n)];
      const T* entry = tables + ids[n] * width;
      T* row = to + n * width;
      for (int64_t c = 0; c < width; ++c) row[c] = entry[c] * scale;
      if (places != nullptr) {
        const T* place = places + time * width;
        for (int64_t c = 0; c < width; ++c) row[c] += place[c];
      }
      if (extras != nullptr) {
        const T* extra = extras + rows.sequence[static_cast<size_t>(n)] * width;
        for (int64_t c = 0; c < width; ++c) row[c] += extra[c];
      }
      if (!state.dropout.active()) continue;
      fill_mask(state.dropout, rows.sample_key(n), static_cast<uint64_t>(time * width), width, mask.data());
      for (int64_t c = 0; c < width; ++c) row[c] *= static_cast<T>(mask[static_cast<size_t>(c)]);
    }
  });
}

// out[index[n]] += grad[n] * scale for all n, columns shared among threads.
template <class T, class Index>
torch::Tensor scatter_rows(const torch::Tensor& grad, int64_t lines, T scale, const Index& index) {
  const int64_t width = grad.size(1), rows = grad.size(0);
  torch::Tensor out = torch::zeros({lines, width}, grad.options());
  const T* from = grad.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  at::parallel_for(0, width, 64, [&](int64_t begin, int64_t end) {
    for (int64_t n = 0; n < rows; ++n) {
      T* line = to + index(n) * width;
      const T* row = from + n * width;
      for (int64_t c = begin; c < end; ++c) line[c] += row[c] * scale;
    }
  });
  return out;
}

struct PackedEmbeddingFunction : torch::autograd::Function<PackedEmbeddingFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& table,
                               const std::optional<torch::Tensor>& positions,
                               const std::optional<torch::Tensor>& per_sequence, const torch::Tensor& tokens,
                               const c10::intrusive_ptr<EmbeddingState>& state) {
    torch::Tensor out = torch::empty({tokens.size(0), table.size(1)}, table.options());
    AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "packed_embedding", [&] {
      embedding_forward<scalar_t>(*state, table, tokens, positions.value_or(torch::Tensor()),
                                  per_sequence.value_or(torch::Tensor()), out);
    });
    ctx->save_for_backward({tokens});
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    ctx->saved_data["lines"] = table.size(0);
    ctx->saved_data["position_lines"] = positions && positions->requires_grad() ? positions->size(0) : int64_t{0};
    ctx->saved_data["per_sequence"] = per_sequence.has_value();
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const torch::Tensor tokens = ctx->get_saved_variables()[0];
    const auto& state = *static_cast<EmbeddingState*>(ctx->saved_data["state"].toCapsule().get());
    const PackedRows& rows = *state.rows;
    torch::Tensor grad = grads[0].contiguous();
    if (state.dropout.active()) grad = grad * mask_tensor(state.dropout, rows, grad.size(1)).to(grad.scalar_type());
    const int64_t* ids = tokens.const_data_ptr<int64_t>();
    const int64_t position_lines = ctx->saved_data["position_lines"].toInt();
    variable_list out(5);
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "packed_embedding_backward", [&] {
      using T = scalar_t;
      out[0] = scatter_rows<T>(grad, ctx->saved_data["lines"].toInt(), static_cast<T>(state.scale),
                               [&](int64_t n) { return ids[n]; });
      if (position_lines > 0)
        out[1] =
            scatter_rows<T>(grad, position_lines, T(1), [&](int64_t n) { return rows.time[static_cast<size_t>(n)]; });
      if (ctx->saved_data["per_sequence"].toBool())
        out[2] = scatter_rows<T>(grad, rows.num_sequences(), T(1),
                                 [&](int64_t n) { return rows.sequence[static_cast<size_t>(n)]; });
    });
    return out;
  }
};

}  // namespace

torch::Tensor packed_embedding(const EmbeddingInputs& inputs, const Rows& rows, const DropoutDraw& dropout) {
  REDLINE_CHECK(inputs.tokens.size(0) == rows->num_rows(), "one token per row");
  REDLINE_CHECK(!inputs.positions.defined() || inputs.positions.size(0) >= rows->longest(),
                "a position for every time");
  if (!row_kernels_fit(inputs.table) || !on_plain_cpu(inputs.tokens) || rows->num_rows() == 0)
    return packed_embedding_plain(inputs, rows, dropout);
  const torch::Tensor tokens = inputs.tokens.contiguous();
  const auto [low, high] = tokens.aminmax();
  REDLINE_CHECK(low.item<int64_t>() >= 0 && high.item<int64_t>() < inputs.table.size(0),
                "tokens are rows of the table");
  auto state = c10::make_intrusive<EmbeddingState>();
  state->rows = rows;
  state->dropout = dropout;
  state->scale = inputs.scale;
  const auto type = inputs.table.scalar_type();
  const auto given = [&](const torch::Tensor& x) {
    return x.defined() ? std::optional<torch::Tensor>(x.to(type).contiguous()) : std::nullopt;
  };
  return PackedEmbeddingFunction::apply(inputs.table, given(inputs.positions), given(inputs.per_sequence), tokens,
                                        state);
}

torch::Tensor packed_embedding_plain(const EmbeddingInputs& inputs, const Rows& rows, const DropoutDraw& dropout) {
  const auto device = inputs.table.device();
  const auto index = [&](const std::vector<int32_t>& values) {
    return torch::tensor(std::vector<int64_t>(values.begin(), values.end()), torch::kInt64).to(device);
  };
  torch::Tensor out = at::embedding(inputs.table, inputs.tokens) * inputs.scale;
  if (inputs.positions.defined())
    out = out + inputs.positions.to(inputs.table.options()).index_select(0, index(rows->time));
  if (inputs.per_sequence.defined())
    out = out + inputs.per_sequence.to(inputs.table.scalar_type()).index_select(0, index(rows->sequence));
  return dropout.active() ? out * mask_tensor(dropout, *rows, out.size(1)).to(out.options()) : out;
}

torch::Tensor sinusoid_table(int64_t length, int64_t width) {
  torch::Tensor table = torch::zeros({length, width}, torch::kFloat64);
  auto out = table.accessor<double, 2>();
  for (int64_t t = 0; t < length; ++t)
    for (int64_t c = 0; c < width; ++c) {
      const double angle = static_cast<double>(t) *
                           std::exp(-static_cast<double>(c / 2 * 2) * std::log(10000.0) / static_cast<double>(width));
      out[t][c] = c % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  return table.to(torch::kFloat32);
}

}  // namespace redline::models
