// Row kernels of bias_activation. The scalar tail of a row goes through the same vector code in a small buffer, so a
// width that is no multiple of the lanes rounds the same.
#include "models/layers/bias_activation.h"

#include "core/check.h"
#include "models/layers/gemm.h"
#include "models/layers/kept_rows.h"
#include "models/layers/row_kernels.h"
#include "models/layers/simd.h"

namespace redline::models {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ActivationState : torch::CustomClassHolder {
  Rows rows;
  DropoutDraw dropout;
  Activation activation = Activation::Gelu;
};

template <class T, Activation kKind>
simd::Vec<T> activate(simd::Vec<T> x) {
  if constexpr (kKind == Activation::Relu) return simd::select<T>(x > simd::Vec<T>{}, x, simd::Vec<T>{});
  return x * simd::normal(x).cdf;
}
template <class T, Activation kKind>
simd::Vec<T> derivative(simd::Vec<T> x) {
  if constexpr (kKind == Activation::Relu)
    return simd::select<T>(x > simd::Vec<T>{}, simd::broadcast(T(1)), simd::Vec<T>{});
  const simd::Normal<T> n = simd::normal(x);
  return n.cdf + x * n.density;
}

// in -> out by whole vectors, the tail through a buffer. f(vector of u + bias, vector of second input) -> vector.
template <class T, class F>
void map_row(int64_t width, const T* u, const T* bias, const T* second, T* out, const F& f) {
  constexpr int64_t kLanes = simd::kLanes<T>;
  int64_t c = 0;
  for (; c + kLanes <= width; c += kLanes)
    simd::store(out + c, f(simd::load(u + c) + simd::load(bias + c), simd::load(second + c)));
  if (c == width) return;
  T a[kLanes] = {}, b[kLanes] = {};
  for (int64_t i = c; i < width; ++i) {
    a[i - c] = u[i] + bias[i];
    b[i - c] = second[i];
  }
  simd::store(a, f(simd::load(a), simd::load(b)));
  for (int64_t i = c; i < width; ++i) out[i] = a[i - c];
}

template <class T>
class MaskRow {
 public:
  MaskRow(const ActivationState& state, int64_t width)
      : state_(state),
        width_(width),
        mask_(static_cast<size_t>(simd::round_up(width, 32)), 1.0f),
        values_(mask_.size(), T(1)) {}
  const T* row(int64_t n) {
    if (!state_.dropout.active()) return values_.data();
    const auto first = static_cast<uint64_t>(state_.rows->time[static_cast<size_t>(n)] * width_);
    float* target = mask_.data();
    if constexpr (std::is_same_v<T, float>) target = values_.data();
    fill_mask(state_.dropout, state_.rows->sample_key(n), first, width_, target);
    if constexpr (!std::is_same_v<T, float>) std::copy(mask_.begin(), mask_.end(), values_.begin());
    return values_.data();
  }

 private:
  const ActivationState& state_;
  int64_t width_;
  std::vector<float> mask_;
  std::vector<T> values_;
};

template <class T, Activation kKind>
void activation_forward(const ActivationState& state, const torch::Tensor& u, const torch::Tensor& bias,
                        torch::Tensor& out) {
  const int64_t width = u.size(1);
  const T *in = u.const_data_ptr<T>(), *shift = bias.const_data_ptr<T>();
  T* to = out.mutable_data_ptr<T>();
  for_each_row_block(u.size(0), width, [&](int64_t begin, int64_t end, int64_t) {
    MaskRow<T> mask(state, width);
    for (int64_t n = begin; n < end; ++n)
      map_row(width, in + n * width, shift, mask.row(n), to + n * width,
              [](simd::Vec<T> x, simd::Vec<T> factor) { return activate<T, kKind>(x) * factor; });
  });
}

template <class T, Activation kKind>
torch::Tensor activation_backward(const ActivationState& state, const KeptRows& u, const torch::Tensor& bias,
                                  const torch::Tensor& grad, torch::Tensor& grad_u) {
  const int64_t width = grad.size(1);
  const T *shift = bias.const_data_ptr<T>(), *dout = grad.const_data_ptr<T>();
  T* to = grad_u.mutable_data_ptr<T>();
  ColumnSums<T> sums(width);
  for_each_row_block(grad.size(0), width, [&](int64_t begin, int64_t end, int64_t slot) {
    MaskRow<T> mask(state, width);
    std::vector<float> widened;
    T* sum = sums.line(slot, 0);
    for (int64_t n = begin; n < end; ++n) {
      T* du = to + n * width;
      const T* in = nullptr;
      if constexpr (std::is_same_v<T, float>)
        in = u.rows(n, n + 1, widened);
      else
        in = u.tensor().const_data_ptr<T>() + n * width;
      map_row(width, in, shift, dout + n * width, du,
              [](simd::Vec<T> x, simd::Vec<T> g) { return derivative<T, kKind>(x) * g; });
      if (state.dropout.active()) {
        const T* factor = mask.row(n);
        for (int64_t c = 0; c < width; ++c) du[c] *= factor[c];
      }
      for (int64_t c = 0; c < width; ++c) sum[c] += du[c];
    }
  });
  return sums.total();
}

struct BiasActivationFunction : torch::autograd::Function<BiasActivationFunction> {
  static torch::Tensor forward(AutogradContext* ctx, const torch::Tensor& u, const torch::Tensor& bias,
                               const c10::intrusive_ptr<ActivationState>& state) {
    torch::Tensor out = torch::empty_like(u);
    AT_DISPATCH_FLOATING_TYPES(u.scalar_type(), "bias_activation", [&] {
      if (state->activation == Activation::Relu)
        activation_forward<scalar_t, Activation::Relu>(*state, u, bias, out);
      else
        activation_forward<scalar_t, Activation::Gelu>(*state, u, bias, out);
    });
    ctx->save_for_backward({KeptRows(u, gemm_type()).tensor(), bias});
    ctx->saved_data["state"] = c10::IValue::make_capsule(state);
    return out;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const variable_list saved = ctx->get_saved_variables();
    const auto& state = *static_cast<ActivationState*>(ctx->saved_data["state"].toCapsule().get());
    const torch::Tensor grad = grads[0].contiguous();
    const KeptRows u(saved[0]);
    torch::Tensor grad_u = torch::empty_like(grad), grad_bias;
    AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "bias_activation_backward", [&] {
      grad_bias = state.activation == Activation::Relu
                      ? activation_backward<scalar_t, Activation::Relu>(state, u, saved[1], grad, grad_u)
                      : activation_backward<scalar_t, Activation::Gelu>(state, u, saved[1], grad, grad_u);
    });
    return {grad_u, grad_bias, torch::Tensor()};
  }
};

}  // namespace

torch::Tensor bias_activation(const torch::Tensor& u_in, const torch::Tensor& bias, Activation activation,
                              const Rows& rows, const DropoutDraw& dropout) {
  REDLINE_CHECK(u_in.size(0) == rows->num_rows(), "one row per position");
  const torch::Tensor u = u_in.scalar_type() == torch::kFloat64 ? u_in : u_in.to(torch::kFloat32);
  if (!row_kernels_fit(u)) return bias_activation_plain(u, bias, activation, rows, dropout);
  auto state = c10::make_intrusive<ActivationState>();
  state->rows = rows;
  state->dropout = dropout;
  state->activation = activation;
  return BiasActivationFunction::apply(u.contiguous(), bias.to(u.scalar_type()), state);
}

torch::Tensor bias_activation_plain(const torch::Tensor& u, const torch::Tensor& bias, Activation activation,
                                    const Rows& rows, const DropoutDraw& dropout) {
  const torch::Tensor x = u + bias;
  const torch::Tensor out = activation == Activation::Relu ? at::relu(x) : at::gelu(x);
  return dropout.active() ? out * mask_tensor(dropout, *rows, u.size(1)).to(out.options()) : out;
}

}  // namespace redline::models
