// Embeddings of a set with their classes: what the separation metrics, the pictures and the projector's files are made
// of.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models::embedding {

struct EmbeddingSet {
  torch::Tensor vectors;        // [n, d] float32, on the CPU, contiguous
  std::vector<int64_t> labels;  // of each row; any numbers, equal ones are one class
  std::vector<int64_t> ids;     // the samples' numbers in their data set; may be empty

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t width() const { return vectors.defined() ? vectors.size(1) : 0; }
};

}  // namespace redline::models::embedding
