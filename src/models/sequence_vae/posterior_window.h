// The posteriors of the latest training batches, kept by the task's forward pass and read by the monitor: a ring with a
// fixed number of batches, so memory is bounded and no second pass over the data is needed.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <vector>

#include "models/sequence_vae/posterior_statistics.h"

namespace redline::models::sequence_vae {

class PosteriorWindow {
 public:
  explicit PosteriorWindow(int64_t batches) : limit_(static_cast<size_t>(batches)) {}

  // Detached tensors of one batch: mean, log-variance and draw [B, latent], reconstruction [B]. Nothing is copied to
  // the host here.
  void push(const torch::Tensor& mean, const torch::Tensor& log_variance, const torch::Tensor& draw,
            const torch::Tensor& reconstruction);
  bool empty() const { return batches_.empty(); }

  // All of it on the host, oldest first.
  struct Snapshot {
    int64_t n = 0, latent = 0;
    std::vector<float> mean, log_variance, draw;
    double reconstruction = 0.0;  // mean per sequence
    Posteriors view() const { return {n, latent, mean, log_variance, draw}; }
    Posteriors last(int64_t count) const;  // of the latest examples, at most
  };
  Snapshot snapshot() const;

 private:
  struct Entry {
    torch::Tensor mean, log_variance, draw, reconstruction;
  };
  size_t limit_;
  std::deque<Entry> batches_;
};

}  // namespace redline::models::sequence_vae
