#include "models/layers/batch_norm.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace redline::models {

namespace {

// all_reduce_sum as a differentiable step: the gradient of a sum over ranks is the sum of the ranks' gradients. Where
// this rank's value does not count, the sum does not depend on it: it takes part, and its gradient is zero.
struct SumOverRanks : torch::autograd::Function<SumOverRanks> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const torch::Tensor& value, int64_t collective,
                               bool counts) {
    ctx->saved_data["collective"] = collective;
    ctx->saved_data["counts"] = counts;
    return reinterpret_cast<task::Collective*>(collective)->all_reduce_sum(value.contiguous());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    auto* collective = reinterpret_cast<task::Collective*>(ctx->saved_data["collective"].toInt());
    const torch::Tensor sum = collective->all_reduce_sum(grads[0].contiguous());
    return {ctx->saved_data["counts"].toBool() ? sum : torch::zeros_like(sum), torch::Tensor(), torch::Tensor()};
  }
};

}  // namespace

BatchNormImpl::BatchNormImpl(int64_t channels, double epsilon, double momentum_of_new)
    : eps(epsilon), momentum(momentum_of_new) {
  weight = register_parameter("weight", torch::empty({channels}));
  bias = register_parameter("bias", torch::empty({channels}));
  running_mean = register_buffer("running_mean", torch::zeros({channels}));
  running_var = register_buffer("running_var", torch::ones({channels}));
  num_batches_tracked = register_buffer("num_batches_tracked", torch::zeros({}, torch::kInt64));
}

void BatchNormImpl::initialise() {
  const torch::NoGradGuard no_grad;
  weight.fill_(1.0);
  bias.zero_();
  running_mean.zero_();
  running_var.fill_(1.0);
  num_batches_tracked.zero_();
}

void BatchNormImpl::defer(const torch::Tensor& mean, const torch::Tensor& biased_variance, double count,
                          task::Context& ctx) const {
  const double unbiased = count > 1.0 ? count / (count - 1.0) : 1.0;
  ctx.defer(
      {running_mean, running_var, num_batches_tracked, mean.detach(), biased_variance.detach() * unbiased, momentum});
}

torch::Tensor BatchNormImpl::forward(const torch::Tensor& x, task::Context& ctx) const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t channels = weight.size(0);
  const torch::Tensor rows = x.reshape({-1, channels}).to(torch::kFloat32);
  torch::Tensor mean = running_mean, variance = running_var;
  if (ctx.training()) {
    double count = static_cast<double>(rows.size(0));
    mean = rows.mean(0);
    if (ctx.collective != nullptr && ctx.collective->world_size() > 1) {
      const auto collective = static_cast<int64_t>(reinterpret_cast<intptr_t>(ctx.collective));
      const torch::Tensor sums = torch::cat({rows.sum(0), torch::full({1}, count, rows.options())});
      const torch::Tensor all = SumOverRanks::apply(sums, collective, ctx.counts);
      count = std::max(1.0, all[channels].item<double>());  // 0: every rank has only a stand-in
      mean = all.narrow(0, 0, channels) / count;
      variance = SumOverRanks::apply((rows - mean).pow(2).sum(0), collective, ctx.counts) / count;
    } else {
      variance = (rows - mean).pow(2).mean(0);
    }
    defer(mean, variance, count, ctx);
  }
  return ((rows - mean) * torch::rsqrt(variance + eps) * weight + bias).view(x.sizes());
}

}  // namespace redline::models
