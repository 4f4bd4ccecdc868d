// Index arithmetic between padded and packed layouts; the moves themselves are LibTorch's index_select and index_copy.
#include "models/layers/packed_rows.h"

#include "core/check.h"

namespace redline::models {

int64_t PackedRows::longest() const {
  int64_t top = 0;
  for (int64_t b = 0; b < num_sequences(); ++b) top = std::max(top, length(b));
  return top;
}

Rows pack_rows(const std::vector<int64_t>& lengths, const std::vector<int64_t>& sample_ids) {
  REDLINE_CHECK(lengths.size() == sample_ids.size(), "one length per sample of the batch");
  auto rows = c10::make_intrusive<PackedRows>();
  rows->sample_ids = sample_ids;
  rows->offsets.push_back(0);
  for (size_t b = 0; b < lengths.size(); ++b) {
    REDLINE_CHECK(lengths[b] >= 0, "a sequence's length is not negative");
    for (int64_t t = 0; t < lengths[b]; ++t) {
      rows->sequence.push_back(static_cast<int32_t>(b));
      rows->time.push_back(static_cast<int32_t>(t));
    }
    rows->offsets.push_back(rows->offsets.back() + lengths[b]);
  }
  return rows;
}

Rows last_rows(const PackedRows& rows) {
  auto last = c10::make_intrusive<PackedRows>();
  last->sample_ids = rows.sample_ids;
  last->offsets.push_back(0);
  for (int64_t b = 0; b < rows.num_sequences(); ++b) {
    REDLINE_CHECK(rows.length(b) >= 1, "a sequence without positions has no last one");
    last->sequence.push_back(static_cast<int32_t>(b));
    last->time.push_back(static_cast<int32_t>(rows.length(b) - 1));
    last->offsets.push_back(b + 1);
  }
  return last;
}

torch::Tensor row_index(const PackedRows& rows, int64_t padded_length) {
  torch::Tensor index = torch::empty({rows.num_rows()}, torch::kInt64);
  int64_t* out = index.mutable_data_ptr<int64_t>();
  for (int64_t b = 0; b < rows.num_sequences(); ++b)
    for (int64_t n = rows.offsets[static_cast<size_t>(b)]; n < rows.offsets[static_cast<size_t>(b) + 1]; ++n)
      out[n] = b * padded_length + n - rows.offsets[static_cast<size_t>(b)];
  return index;
}

torch::Tensor pack(const torch::Tensor& padded, const PackedRows& rows) {
  REDLINE_CHECK(padded.dim() >= 2 && padded.size(0) == rows.num_sequences() && padded.size(1) >= rows.longest(),
                "a padded batch is [B, T, ...] with T at least the longest sequence");
  return padded.flatten(0, 1).index_select(0, row_index(rows, padded.size(1)).to(padded.device()));
}

torch::Tensor unpack(const torch::Tensor& packed, const PackedRows& rows) {
  REDLINE_CHECK(packed.dim() >= 1 && packed.size(0) == rows.num_rows(), "a packed tensor has one row per position");
  std::vector<int64_t> shape = packed.sizes().vec();
  shape[0] = rows.num_sequences() * rows.longest();
  const torch::Tensor index = row_index(rows, rows.longest()).to(packed.device());
  torch::Tensor flat = torch::zeros(shape, packed.options()).index_copy(0, index, packed);
  shape[0] = rows.longest();
  shape.insert(shape.begin(), rows.num_sequences());
  return flat.view(shape);
}

}  // namespace redline::models
