// Activations that a layer keeps for backward: as they are, or where products run in bfloat16 (gemm_bf16.h) rounded to
// it, half as large. Backward widens the rows that it reads, a tile at a time.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "models/layers/gemm_bf16.h"
#include "models/layers/panel_gemm_bf16.h"

namespace redline::models {

class KeptRows {
 public:
  KeptRows() = default;
  // Rows of x's last dimension; a float tensor, contiguous where it is rounded.
  KeptRows(const torch::Tensor& x, torch::ScalarType type)
      : kept_(bf16_products(type) && x.scalar_type() == torch::kFloat32 ? x.to(torch::kBFloat16) : x) {}
  // What is there already, rounded or not.
  explicit KeptRows(const torch::Tensor& kept) : kept_(kept) {}

  // Rounds `count` floats into a bfloat16 tensor, from element `first`.
  static void write(const float* from, int64_t count, torch::Tensor& to, int64_t first) {
    bf16_panels::round_line(from, count,
                            reinterpret_cast<bf16_panels::Bf16*>(to.mutable_data_ptr<at::BFloat16>()) + first);
  }

  // Rounds `count` rows of n floats into a bfloat16 tensor, from row `first`: what lies around each row's mean. The sum
  // itself would lose that where the mean is large, and a LayerNorm's backward asks for nothing else.
  static void write_centred(const float* rows, const float* means, int64_t count, int64_t n, torch::Tensor& to,
                            int64_t first) {
    std::vector<float> line(static_cast<size_t>(n));
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t c = 0; c < n; ++c) line[static_cast<size_t>(c)] = rows[i * n + c] - means[i];
      write(line.data(), n, to, (first + i) * n);
    }
  }

  bool defined() const { return kept_.defined(); }
  void reset() { kept_.reset(); }
  const torch::Tensor& tensor() const { return kept_; }
  torch::Tensor floats() const { return kept_.scalar_type() == torch::kBFloat16 ? kept_.to(torch::kFloat32) : kept_; }
  // `count` floats from element `first`; in `scratch` when they have to be widened.
  const float* run(int64_t first, int64_t count, std::vector<float>& scratch) const {
    if (kept_.scalar_type() != torch::kBFloat16) return kept_.const_data_ptr<float>() + first;
    if (scratch.size() < static_cast<size_t>(count)) scratch.resize(static_cast<size_t>(count));
    const auto* words = reinterpret_cast<const bf16_panels::Bf16*>(kept_.const_data_ptr<at::BFloat16>());
    bf16_panels::widen(words + first, count, scratch.data());
    return scratch.data();
  }
  const float* rows(int64_t begin, int64_t end, std::vector<float>& scratch) const {
    return run(begin * kept_.size(-1), (end - begin) * kept_.size(-1), scratch);
  }

 private:
  torch::Tensor kept_;
};

}  // namespace redline::models
