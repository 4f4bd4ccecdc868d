// Keyed dropout for packed rows and for attention weights, made inside fused kernels instead of by a pass of its own.
// The address of an element is the one task::Context::dropout gives it in the padded tensor ([B, T, C], or [B, H, T, T]
// with padded_dims {2, 3}), so packed and padded computations drop the same elements.
#pragma once

#include <cstdint>

#include "models/layers/packed_rows.h"
#include "task/keyed_random.h"

namespace redline::models {

using task::attention_element, task::DropoutDraw;

// Multipliers (0 or scale) of elements [first, first + count) of a sample; `out` holds at least count rounded up to 32.
void fill_mask(const DropoutDraw& dropout, uint64_t sample, uint64_t first, int64_t count, float* out);
// The plain twin, one element at a time; same bits.
void fill_mask_plain(const DropoutDraw& dropout, uint64_t sample, uint64_t first, int64_t count, float* out);

// [N, width] of multipliers: what a reference without fusion multiplies by.
torch::Tensor mask_tensor(const DropoutDraw& dropout, const PackedRows& rows, int64_t width);

}  // namespace redline::models
