// The losses of an image embedding. All are in float32 and finite for any labels: an anchor without a positive (or
// negative) has no part in a loss that compares samples, and a batch without any such anchor has weight 0.
//
// Sources: Khosla et al. 2020 (supervised contrastive; one view per sample), Hermans et al. 2017 (batch-hard and
// batch-all triplets), Deng et al. 2019 (ArcFace), Wen et al. 2016 (centre).
#pragma once

#include <torch/torch.h>

#include "models/convnext/options.h"

namespace redline::models::convnext {

// Mean over `weight` items.
struct MeanLoss {
  torch::Tensor value, weight;
};

// targets: int64 [N], or float [N, classes] that sum to 1 (mixup).
MeanLoss cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets, double label_smoothing);

// embedding [N, E] of unit length, labels int64 [N]. The mean is over anchors that have a positive.
MeanLoss supervised_contrastive(const torch::Tensor& embedding, const torch::Tensor& labels,
                                const LossOptions& options);

// relu(distance to the positive - distance to the negative + margin). batch_hard: the mean over anchors with both;
// batch_all: over the triplets whose loss is above 0.
MeanLoss triplet(const torch::Tensor& embedding, const torch::Tensor& labels, const LossOptions& options);

// scale * cos(angle + margin) for the right class, scale * cos(angle) for the others. Where the sum would pass pi, the
// cosine is no longer monotone: cos(angle) - margin * sin(margin) instead.
torch::Tensor arcface_logits(const torch::Tensor& embedding, const torch::Tensor& class_weights,
                             const torch::Tensor& labels, const LossOptions& options);

// Mean squared distance of each sample to the centre of its class.
torch::Tensor center_distance(const torch::Tensor& embedding, const torch::Tensor& centers,
                              const torch::Tensor& labels);

// Rows of unit length; a row of zeros stays zeros.
torch::Tensor unit_rows(const torch::Tensor& x);

}  // namespace redline::models::convnext
