// The posteriors of the latest training batches, kept by the task's forward pass and read by the monitor: a ring with a
// fixed number of batches, so memory is bounded and no second pass over the data is needed.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
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
  // The same for a step that may still be given up: it counts from commit() on, drop_staged() forgets it.
  void stage(const torch::Tensor& mean, const torch::Tensor& log_variance, const torch::Tensor& draw,
             const torch::Tensor& reconstruction);
  void commit();
  void drop_staged() { staged_.clear(); }
  bool empty() const { return batches_.empty(); }
  int64_t size() const { return static_cast<int64_t>(batches_.size()); }

  // For checkpoints: all batches one after another, and how many rows each has. Comes back bit by bit; staged ones are
  // not part of it. Throws CheckpointError when the tensors do not belong together.
  std::map<std::string, torch::Tensor> state() const;
  void restore(const std::map<std::string, torch::Tensor>& state);

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
  void keep(Entry entry);
  std::deque<Entry> batches_;
  std::vector<Entry> staged_;
};

}  // namespace redline::models::sequence_vae
