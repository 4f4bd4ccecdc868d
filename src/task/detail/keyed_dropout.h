// Dropout whose mask is a function of (key, sample, element): regenerated in backward instead of stored, equal however
// the batch is split. One 16-bit draw per element, so p is rounded to the nearest 1/65536 (and the kept values are
// scaled by 1/(1 - that)).
#pragma once

#include <torch/torch.h>

#include <memory>

#include "task/keyed_random.h"

namespace redline::task {

struct DropoutMask {
  DropoutDraw draw;
  std::vector<int64_t> sample_ids;
  KeyLayout layout;
};

// x * mask * scale without autograd, same shape and memory format. Floating types on the CPU; other devices get the
// mask from here.
torch::Tensor apply_dropout_mask(const torch::Tensor& x, const DropoutMask& mask, RandomPath path);
// bool: the elements that the mask keeps, laid out as a contiguous tensor of this shape.
torch::Tensor kept_elements(at::IntArrayRef shape, const DropoutMask& mask, RandomPath path);
// The same with a backward that draws the mask again.
torch::Tensor keyed_dropout(const torch::Tensor& x, std::shared_ptr<const DropoutMask> mask);

}  // namespace redline::task
