// Sequences from codes: drawn from the prior, or the reconstruction of given ones. Used by `redline sample`.
#pragma once

#include <cstdint>
#include <vector>

#include "models/sequence_vae/task.h"

namespace redline::models::sequence_vae {

struct GenerateOptions {
  int64_t max_length = 100;  // steps; tokens end earlier at end_id
  double temperature = 1.0;  // of the token draws; 0 takes the likeliest
  uint64_t seed = 0;
};

struct Generated {
  std::vector<int64_t> tokens;             // without start and end
  std::vector<std::vector<float>> values;  // real-valued tasks: the means, step by step
};

// One sequence per row of codes z [n, latent].
std::vector<Generated> decode(SequenceVaeTask& task, const torch::Tensor& z, const GenerateOptions& options);
// n codes from N(0, I), keyed by the seed.
torch::Tensor prior_codes(int64_t n, int64_t latent, uint64_t seed);
// Posterior means of a batch [B, latent].
torch::Tensor posterior_means(SequenceVaeTask& task, const task::Batch& batch);

}  // namespace redline::models::sequence_vae
