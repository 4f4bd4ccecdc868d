// Ragged batches of tokens for the sequence VAE's step benches.
#pragma once

#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/philox.h"
#include "task/batch.h"

namespace redline::bench {

// Log-normal lengths by quantiles in a fixed scrambled order, so that both programs see the same ones.
inline std::vector<int64_t> lengths_for(double median, int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i) {
    const double u = (static_cast<double>((i * 37) % count) + 0.5) / static_cast<double>(count);
    const double z = std::log(u / (1.0 - u)) / 1.702;  // logistic approximation of the normal quantile
    lengths.push_back(std::clamp<int64_t>(static_cast<int64_t>(median * std::exp(0.6 * z)), 4, 998) + 2);
  }
  return lengths;
}

inline task::Batch vae_batch(const std::vector<int64_t>& lengths, int64_t first, int64_t vocab) {
  task::Batch batch;
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  torch::Tensor tokens = torch::zeros({static_cast<int64_t>(lengths.size()), longest}, torch::kInt64);
  for (size_t b = 0; b < lengths.size(); ++b) {
    batch.sample_ids.push_back(first + static_cast<int64_t>(b));
    KeyedStream stream(1, 2, static_cast<uint64_t>(batch.sample_ids.back()), 3);
    int64_t* row = tokens[static_cast<int64_t>(b)].mutable_data_ptr<int64_t>();
    for (int64_t t = 0; t < lengths[b]; ++t) row[t] = stream.uniform_int(3, vocab - 1);
  }
  batch.tensors = {{"tokens", tokens}, {"lengths", torch::tensor(lengths, torch::kInt64)}};
  return batch;
}

}  // namespace redline::bench
