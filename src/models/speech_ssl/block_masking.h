// Random blocks of frames to hide (NeMo's RandomBlockMasking). The choice of frames is pure arithmetic on a keyed
// stream, so it is the same for any split of the batch and is tested as a table.
//
// Follows the released NeMo 2 rules: with overlap every start in [0, L - block) is taken with probability mask_prob
// (the same distribution as its binomial count and permutation); a clip of at most block / max_mask_ratio frames hides
// its first 8 instead.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "core/philox.h"
#include "models/speech_ssl/options.h"
#include "task/context.h"

namespace redline::models::speech {

struct Block {
  int64_t begin, end;
  bool operator==(const Block&) const = default;
};
// Blocks within [0, length); may overlap and are not sorted.
std::vector<Block> choose_blocks(int64_t length, int64_t block_size, const MaskingOptions& options,
                                 KeyedStream& stream);

class BlockMaskingImpl : public torch::nn::Module {
 public:
  BlockMaskingImpl(const MaskingOptions& options, int64_t features, int64_t block_size);
  void initialise(uint64_t seed, const std::string& name);

  // bool [B, T], true = hidden; each clip draws from its own sample id.
  torch::Tensor choose(const torch::Tensor& lengths_B, int64_t time, const task::Context& ctx) const;
  // x_BTF with the embedding where mask (bool [B, T, 1] or [B, T, F]) is set.
  torch::Tensor apply(const torch::Tensor& x_BTF, const torch::Tensor& mask) const;
  bool trainable() const { return mask_embedding_.requires_grad(); }

 private:
  MaskingOptions options_;
  int64_t block_size_;
  torch::Tensor mask_embedding_;
};
TORCH_MODULE(BlockMasking);

}  // namespace redline::models::speech
