#include "models/speech_ssl/block_masking.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "models/layers/keyed_init.h"

namespace redline::models::speech {

namespace {

constexpr int64_t kShortClipBlock = 8;

// Each of `count` positions with probability p; jumps from hit to hit (geometric gaps) instead of drawing for every
// position.
std::vector<int64_t> bernoulli_positions(int64_t count, double p, KeyedStream& stream) {
  std::vector<int64_t> hits;
  if (p <= 0.0) return hits;
  const double log_miss = p >= 1.0 ? -1.0 : std::log1p(-p);
  for (int64_t at = 0; at < count; ++at) {
    if (p < 1.0) {
      const double gap = std::floor(std::log1p(-stream.uniform()) / log_miss);
      if (gap >= static_cast<double>(count - at)) break;
      at += static_cast<int64_t>(gap);
    }
    hits.push_back(at);
  }
  return hits;
}

// The first n of a random permutation of `count` slots.
std::vector<int64_t> draw_slots(int64_t count, int64_t n, KeyedStream& stream) {
  std::vector<int64_t> slots(static_cast<size_t>(count));
  std::iota(slots.begin(), slots.end(), 0);
  for (int64_t i = 0; i < n; ++i)
    std::swap(slots[static_cast<size_t>(i)], slots[static_cast<size_t>(stream.uniform_int(i, count - 1))]);
  slots.resize(static_cast<size_t>(n));
  return slots;
}

}  // namespace

std::vector<Block> choose_blocks(int64_t length, int64_t block_size, const MaskingOptions& options,
                                 KeyedStream& stream) {
  std::vector<Block> blocks;
  if (length <= 0) return blocks;
  if (static_cast<double>(block_size) >= options.max_mask_ratio * static_cast<double>(length)) {
    blocks.push_back({0, std::min(kShortClipBlock, length)});
    return blocks;
  }
  if (options.allow_overlap) {
    for (int64_t start : bernoulli_positions(length - block_size, options.mask_prob, stream))
      blocks.push_back({start, std::min(start + block_size, length)});
    return blocks;
  }
  const auto wanted = static_cast<int64_t>(
      std::ceil(static_cast<double>(length) * options.mask_prob / static_cast<double>(block_size)));
  int64_t block = block_size;
  if ((wanted + 1) * block > length) block = std::max<int64_t>(1, length / (wanted + 1));
  const int64_t offset = stream.uniform_int(0, block - 1);
  const int64_t slots = std::max<int64_t>(0, length / block - 1);
  for (int64_t slot : draw_slots(slots, std::min(wanted, slots), stream)) {
    const int64_t start = slot * block + offset;
    blocks.push_back({start, std::min(start + block, length)});
  }
  return blocks;
}

BlockMaskingImpl::BlockMaskingImpl(const MaskingOptions& options, int64_t features, int64_t block_size)
    : options_(options), block_size_(block_size) {
  mask_embedding_ =
      register_parameter("mask_embedding", torch::empty({features}), !options.freeze && !options.mask_value);
}

void BlockMaskingImpl::initialise(uint64_t seed, const std::string& name) {
  const torch::NoGradGuard no_grad;
  if (options_.mask_value)
    mask_embedding_.fill_(*options_.mask_value);
  else
    fill_normal(mask_embedding_, 0.1, seed, name + ".mask_embedding");
}

torch::Tensor BlockMaskingImpl::choose(const torch::Tensor& lengths_B, int64_t time, const task::Context& ctx) const {
  const int64_t batch = lengths_B.size(0);
  torch::Tensor mask = torch::zeros({batch, time}, torch::kBool);
  const torch::Tensor lengths = lengths_B.to(torch::kCPU);
  bool* hidden = mask.mutable_data_ptr<bool>();
  for (int64_t b = 0; b < batch; ++b) {
    KeyedStream stream = ctx.stream(ctx.sample_ids()[static_cast<size_t>(b)], "masking");
    for (const Block& block : choose_blocks(std::min(lengths[b].item<int64_t>(), time), block_size_, options_, stream))
      std::fill(hidden + b * time + block.begin, hidden + b * time + block.end, true);
  }
  return mask;
}

torch::Tensor BlockMaskingImpl::apply(const torch::Tensor& x_BTF, const torch::Tensor& mask) const {
  return torch::where(mask.to(x_BTF.device()), mask_embedding_.to(x_BTF.scalar_type()).view({1, 1, -1}), x_BTF);
}

}  // namespace redline::models::speech
