#include "models/sequence_vae/posterior_window.h"

#include "core/error.h"

namespace redline::models::sequence_vae {

void PosteriorWindow::keep(Entry entry) {
  batches_.push_back(std::move(entry));
  if (batches_.size() > limit_) batches_.pop_front();
}

void PosteriorWindow::stage(const torch::Tensor& mean, const torch::Tensor& log_variance, const torch::Tensor& draw,
                            const torch::Tensor& reconstruction) {
  // clone: the tensors may be views into a larger one (both halves of the encoder's output), which would stay alive.
  staged_.push_back(
      {mean.detach().clone(), log_variance.detach().clone(), draw.detach().clone(), reconstruction.detach().clone()});
}

void PosteriorWindow::commit() {
  for (Entry& entry : staged_) keep(std::move(entry));
  staged_.clear();
}

void PosteriorWindow::push(const torch::Tensor& mean, const torch::Tensor& log_variance, const torch::Tensor& draw,
                           const torch::Tensor& reconstruction) {
  stage(mean, log_variance, draw, reconstruction);
  commit();
}

std::map<std::string, torch::Tensor> PosteriorWindow::state() const {
  if (batches_.empty()) return {};
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> mean, log_variance, draw, reconstruction;
  std::vector<int64_t> rows;
  for (const Entry& entry : batches_) {
    mean.push_back(entry.mean);
    log_variance.push_back(entry.log_variance);
    draw.push_back(entry.draw);
    reconstruction.push_back(entry.reconstruction);
    rows.push_back(entry.mean.size(0));
  }
  return {{"window.mean", torch::cat(mean)},
          {"window.log_variance", torch::cat(log_variance)},
          {"window.draw", torch::cat(draw)},
          {"window.reconstruction", torch::cat(reconstruction)},
          {"window.rows", torch::tensor(rows, torch::kInt64)}};
}

void PosteriorWindow::restore(const std::map<std::string, torch::Tensor>& state) {
  batches_.clear();
  staged_.clear();
  if (!state.contains("window.rows")) return;
  const torch::Tensor rows = state.at("window.rows").to(torch::kCPU, torch::kInt64).contiguous();
  const int64_t total = rows.sum().item<int64_t>();
  for (const char* name : {"window.mean", "window.log_variance", "window.draw", "window.reconstruction"})
    if (!state.contains(name) || state.at(name).dim() < 1 || state.at(name).size(0) != total || rows.dim() != 1 ||
        rows.lt(0).any().item<bool>())
      throw CheckpointError(std::string("The checkpoint's posterior window is not whole: monitor.") + name +
                            " is missing or has another number of rows than monitor.window.rows says.");
  int64_t begin = 0;
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const int64_t count = rows.const_data_ptr<int64_t>()[i];
    const auto part = [&](const char* name) { return state.at(name).narrow(0, begin, count).clone(); };
    keep({part("window.mean"), part("window.log_variance"), part("window.draw"), part("window.reconstruction")});
    begin += count;
  }
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
