#include "train/step/batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <span>

#include "data/tensor_batch.h"

namespace redline::train {

task::Batch to_task_batch(const data::Batch& batch, device::CopyStream* stream) {
  task::Batch result;
  for (const auto& [name, array] : batch.fields) {
    torch::Tensor tensor = data::to_tensor(array);
    if (stream != nullptr && stream->copies()) tensor = stream->start(tensor);
    result.tensors.emplace(name, std::move(tensor));
  }
  if (stream != nullptr && stream->copies()) stream->wait();
  result.sample_ids = batch.sample_ids;
  result.items = batch.items;
  result.padded_items = batch.padded_items;
  return result;
}

task::Batch narrow_batch(const task::Batch& batch, const task::BatchSchema& schema, int64_t begin, int64_t count) {
  const int64_t rows = batch.size();
  if (begin == 0 && count == rows) return batch;
  task::Batch piece;
  for (const auto& [name, tensor] : batch.tensors) {
    bool by_row = tensor.dim() > 0 && tensor.size(0) == rows;
    for (const task::TensorSpec& spec : schema.tensors)
      if (spec.name == name) by_row = !spec.shape.empty() && spec.shape[0] == -2;
    piece.tensors.emplace(name, by_row ? tensor.narrow(0, begin, count) : tensor);
  }
  piece.sample_ids.assign(batch.sample_ids.begin() + begin, batch.sample_ids.begin() + begin + count);
  piece.items = batch.items * count / rows;
  piece.padded_items = batch.padded_items * count / rows;
  return piece;
}

std::string sample_ids_text(const std::vector<int64_t>& ids, size_t at_most) {
  const std::span<const int64_t> shown(ids.data(), std::min(ids.size(), at_most));
  const std::string text = fmt::format("{}", fmt::join(shown, ", "));
  return ids.size() > at_most ? fmt::format("{} and {} more", text, ids.size() - at_most) : text;
}

}  // namespace redline::train
