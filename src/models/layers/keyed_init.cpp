#include "models/layers/keyed_init.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "core/check.h"
#include "task/keyed_random.h"

namespace redline::models {

namespace {

using Draw = void (*)(PhiloxKey, uint64_t, uint64_t, int64_t, float*, task::RandomPath);

void fill_keyed(torch::Tensor& parameter, uint64_t seed, const std::string& name, Draw draw, float scale, float shift) {
  const torch::NoGradGuard no_grad;
  torch::Tensor values = torch::empty(parameter.sizes(), torch::kFloat32);
  float* out = values.mutable_data_ptr<float>();
  const PhiloxKey key = task::operation_key(seed, -1, name);
  constexpr int64_t kPiece = 1 << 16;
  const int64_t count = values.numel();
  at::parallel_for(0, (count + kPiece - 1) / kPiece, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t first = piece * kPiece, length = std::min(kPiece, count - first);
      draw(key, 0, static_cast<uint64_t>(first), length, out + first, task::best_random_path());
      for (int64_t i = first; i < first + length; ++i) out[i] = out[i] * scale + shift;
    }
  });
  parameter.copy_(values);
}

double xavier_scale(const torch::Tensor& weight) {
  const auto receptive = static_cast<double>(weight.dim() > 2 ? weight[0][0].numel() : 1);
  return std::sqrt(2.0 / (receptive * static_cast<double>(weight.size(0) + weight.size(1))));
}

}  // namespace

void fill_uniform(torch::Tensor& parameter, double bound, uint64_t seed, const std::string& name) {
  fill_keyed(parameter, seed, name, task::uniform_run, static_cast<float>(2.0 * bound), static_cast<float>(-bound));
}
void fill_normal(torch::Tensor& parameter, double deviation, uint64_t seed, const std::string& name) {
  fill_keyed(parameter, seed, name, task::normal_run, static_cast<float>(deviation), 0.0f);
}

int64_t fan_in(const torch::Tensor& weight) {
  REDLINE_CHECK(weight.dim() >= 2 && weight.size(0) > 0, "a weight has outputs and inputs");
  return weight.numel() / weight.size(0);
}

void default_init(torch::Tensor& weight, torch::Tensor& bias, uint64_t seed, const std::string& name) {
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan_in(weight)));
  fill_uniform(weight, bound, seed, name + ".weight");
  if (bias.defined()) fill_uniform(bias, bound, seed, name + ".bias");
}
void xavier_uniform(torch::Tensor& weight, uint64_t seed, const std::string& name) {
  fill_uniform(weight, std::sqrt(3.0) * xavier_scale(weight), seed, name);
}
void xavier_normal(torch::Tensor& weight, uint64_t seed, const std::string& name) {
  fill_normal(weight, xavier_scale(weight), seed, name);
}

AffineImpl::AffineImpl(std::vector<int64_t> shape, bool with_bias) {
  weight = register_parameter("weight", torch::empty(shape));
  if (with_bias) bias = register_parameter("bias", torch::empty({shape[0]}));
}

}  // namespace redline::models
