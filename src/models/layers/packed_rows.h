// Sequences of a padded batch as one list of real rows ("packed"): linear layers, norms and losses then never touch a
// padded position. Row order is sequence by sequence, so a sequence is a contiguous block and attention works on
// blocks.
//
// The lengths must be on the host; on a device this costs one small copy per batch.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models {

// A CustomClassHolder only so that autograd functions can keep it in their context.
struct PackedRows : torch::CustomClassHolder {
  std::vector<int64_t> offsets;     // [B + 1]: sequence b owns rows [offsets[b], offsets[b + 1])
  std::vector<int64_t> sample_ids;  // [B]: keys of random draws
  std::vector<int32_t> sequence;    // [N]: which sequence a row belongs to
  std::vector<int32_t> time;        // [N]: its position there

  int64_t num_rows() const { return offsets.back(); }
  int64_t num_sequences() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t length(int64_t b) const { return offsets[static_cast<size_t>(b) + 1] - offsets[static_cast<size_t>(b)]; }
  int64_t longest() const;
  uint64_t sample_key(int64_t row) const {
    return static_cast<uint64_t>(sample_ids[static_cast<size_t>(sequence[static_cast<size_t>(row)])]);
  }
};
using Rows = c10::intrusive_ptr<PackedRows>;

// One row per position of each sequence. Lengths must not be negative; 0 is allowed.
Rows pack_rows(const std::vector<int64_t>& lengths, const std::vector<int64_t>& sample_ids);
// One row per sequence: the last position of each (every length at least 1); keeps its true time.
Rows last_rows(const PackedRows& rows);

// [B, T, ...] -> [N, ...] and back (zeros where padding is). Both carry gradients.
torch::Tensor pack(const torch::Tensor& padded, const PackedRows& rows);
torch::Tensor unpack(const torch::Tensor& packed, const PackedRows& rows);
// Index of each row in the flattened [B * T, ...] batch, int64 [N].
torch::Tensor row_index(const PackedRows& rows, int64_t padded_length);

}  // namespace redline::models
