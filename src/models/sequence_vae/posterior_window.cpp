#include "models/sequence_vae/posterior_window.h"

namespace redline::models::sequence_vae {

void PosteriorWindow::push(const torch::Tensor& mean, const torch::Tensor& log_variance, const torch::Tensor& draw,
                           const torch::Tensor& reconstruction) {
  // clone: the tensors may be views into a larger one (both halves of the encoder's output), which would stay alive.
  batches_.push_back(
      {mean.detach().clone(), log_variance.detach().clone(), draw.detach().clone(), reconstruction.detach().clone()});
  if (batches_.size() > limit_) batches_.pop_front();
}

Posteriors PosteriorWindow::Snapshot::last(int64_t count) const {
  const int64_t used = std::min(count, n);
  const auto size = static_cast<size_t>(used * latent), skip = mean.size() - size;
  return {used, latent, std::span(mean).subspan(skip), std::span(log_variance).subspan(skip),
          std::span(draw).subspan(skip)};
}

PosteriorWindow::Snapshot PosteriorWindow::snapshot() const {
  Snapshot out;
  double reconstruction = 0.0;
  const auto append = [](std::vector<float>& to, const torch::Tensor& from) {
    const torch::Tensor host = from.to(torch::kCPU, torch::kFloat32).contiguous();
    to.insert(to.end(), host.const_data_ptr<float>(), host.const_data_ptr<float>() + host.numel());
  };
  for (const Entry& entry : batches_) {
    out.n += entry.mean.size(0);
    out.latent = entry.mean.size(1);
    append(out.mean, entry.mean);
    append(out.log_variance, entry.log_variance);
    append(out.draw, entry.draw);
    reconstruction += entry.reconstruction.sum().item<double>();
  }
  out.reconstruction = out.n > 0 ? reconstruction / static_cast<double>(out.n) : 0.0;
  return out;
}

}  // namespace redline::models::sequence_vae
