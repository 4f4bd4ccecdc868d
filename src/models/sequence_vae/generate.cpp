#include "models/generate.h"

#include "core/philox.h"

namespace redline::models::sequence_vae {

namespace {

// Index drawn from softmax(logits / temperature) by one uniform number.
int64_t draw_token(const torch::Tensor& logits, double temperature, double uniform) {
  if (temperature <= 0.0) return logits.argmax().item<int64_t>();
  const torch::Tensor sums =
      (logits.to(torch::kFloat64) / temperature).softmax(0).cumsum(0).to(torch::kCPU).contiguous();
  const double* begin = sums.const_data_ptr<double>();
  const double* found = std::upper_bound(begin, begin + sums.numel(), uniform * begin[sums.numel() - 1]);
  return std::min<int64_t>(found - begin, sums.numel() - 1);
}

std::vector<Generated> decode_tokens(const Options& o, StepDecoder& steps, const torch::Tensor& z,
                                     const GenerateOptions& options) {
  const int64_t n = z.size(0);
  std::vector<Generated> out(static_cast<size_t>(n));
  std::vector<bool> ended(static_cast<size_t>(n), false);
  torch::Tensor now = torch::full({n}, o.start_id, torch::kInt64);
  for (int64_t t = 0; t < options.max_length; ++t) {
    const torch::Tensor logits = steps.step(now.to(z.device())).to(torch::kCPU, torch::kFloat32);
    bool all = true;
    for (int64_t b = 0; b < n; ++b) {
      const auto i = static_cast<size_t>(b);
      const double uniform = KeyedStream(options.seed, static_cast<uint64_t>(t), static_cast<uint64_t>(b), 1).uniform();
      const int64_t token = draw_token(logits[b], options.temperature, uniform);
      now[b] = token;
      ended[i] = ended[i] || token == o.end_id;
      if (!ended[i]) out[i].tokens.push_back(token);
      all = all && ended[i];
    }
    if (all) break;
  }
  return out;
}

std::vector<Generated> decode_values(const Options& o, StepDecoder& steps, const torch::Tensor& z,
                                     const GenerateOptions& options) {
  const int64_t n = z.size(0);
  std::vector<Generated> out(static_cast<size_t>(n));
  torch::Tensor now = torch::zeros({n, o.input_dim}, z.options());
  for (int64_t t = 0; t < options.max_length; ++t) {
    now = steps.step(now);
    const torch::Tensor host = now.to(torch::kCPU, torch::kFloat32).contiguous();
    for (int64_t b = 0; b < n; ++b) {
      const float* row = host.const_data_ptr<float>() + b * o.input_dim;
      out[static_cast<size_t>(b)].values.emplace_back(row, row + o.input_dim);
    }
  }
  return out;
}

}  // namespace

std::vector<Generated> decode(SequenceVaeTask& task, const torch::Tensor& z, const GenerateOptions& options) {
  const torch::NoGradGuard no_grad;
  const std::unique_ptr<StepDecoder> steps = task.model().decoder_for(z);
  GenerateOptions limited = options;  // a learned position table ends at the longest sequence
  limited.max_length = std::min(options.max_length, task.options().max_sequence_length - 1);
  return task.options().reads_tokens() ? decode_tokens(task.options(), *steps, z, limited)
                                       : decode_values(task.options(), *steps, z, limited);
}

torch::Tensor prior_codes(int64_t n, int64_t latent, uint64_t seed) {
  torch::Tensor z = torch::empty({n, latent}, torch::kFloat32);
  for (int64_t b = 0; b < n; ++b) {
    KeyedStream stream(seed, 0, static_cast<uint64_t>(b), 0);
    for (int64_t k = 0; k < latent; ++k) z[b][k] = stream.normal();
  }
  return z;
}

torch::Tensor posterior_means(SequenceVaeTask& task, const task::Batch& batch) {
  const torch::NoGradGuard no_grad;
  task::Context ctx(0, 0, false, batch.sample_ids);
  return task.predict(batch, ctx).at("mu");
}

}  // namespace redline::models::sequence_vae
