// The KL term of the loss, with free bits.
#pragma once

#include <torch/torch.h>

#include "models/sequence_vae/options.h"

namespace redline::models::sequence_vae {

// KL of each example and dimension: (mean^2 + e^lv - lv - 1) / 2 in nats, [B, latent].
torch::Tensor kl_per_dimension(const torch::Tensor& mean, const torch::Tensor& log_variance);

// What of the KL [B, latent] is penalised, as the mean over examples: a scalar. The masking modes give what is left out
// no gradient and no value; `clamp` counts it as its share of target_kl.
torch::Tensor kl_penalty(const torch::Tensor& kl, const FreeBitsOptions& options);
// Whether the penalty looks across the batch, so that splitting a batch changes it.
bool looks_across_batch(const FreeBitsOptions& options);

}  // namespace redline::models::sequence_vae
