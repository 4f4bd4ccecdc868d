// Keyed dropout for packed rows and for attention weights, made inside fused kernels instead of by a pass of its own.
// The address of an element is the one task::Context::dropout gives it in the padded tensor ([B, T, C], or [B, H, T, T]
// with padded_dims {2, 3}), so packed and padded computations drop the same elements.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/philox.h"
#include "models/layers/packed_rows.h"
#include "task/context.h"

namespace redline::models {

struct RowDropout {
  PhiloxKey key;
  uint32_t threshold = 0;  // 16-bit draws below it are dropped; 0 = off
  float scale = 1.0f;
  bool active() const { return threshold != 0; }
};

// Off outside training and for p = 0.
RowDropout row_dropout(const task::Context& ctx, double p, std::string_view operation);

// Multipliers (0 or scale) of elements [first, first + count) of a sample; `out` holds at least count rounded up to 32.
void fill_mask(const RowDropout& dropout, uint64_t sample, uint64_t first, int64_t count, float* out);
// The plain twin, one element at a time; same bits.
void fill_mask_plain(const RowDropout& dropout, uint64_t sample, uint64_t first, int64_t count, float* out);

// [N, width] of multipliers: what a reference without fusion multiplies by.
torch::Tensor mask_tensor(const RowDropout& dropout, const PackedRows& rows, int64_t width);

// Element address of attention weight (head, query i, key j = 0) inside a sample.
inline uint64_t attention_element(int64_t head, int64_t query) {
  constexpr int kExtentBits = 21;  // task::KeyLayout::kPaddedExtent
  return ((static_cast<uint64_t>(head) << kExtentBits) + static_cast<uint64_t>(query)) << kExtentBits;
}

}  // namespace redline::models
