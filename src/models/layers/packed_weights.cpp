#include "models/layers/packed_weights.h"

#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "models/layers/gemm_bf16.h"

namespace redline::models {

namespace {

// Storage, where in it, rows, length of a row, transposed.
using WeightKey = std::tuple<const void*, int64_t, int64_t, int64_t, bool>;
struct PackedWeight {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // its address may be another's when it is gone
  uint32_t version;
  bool asked_again;      // this value was asked for more than once
  torch::Tensor packed;  // undefined: not kept
};
struct PackedWeights {
  std::mutex mutex;
  std::map<WeightKey, PackedWeight> entries;
  int64_t made = 0, found = 0;
};
PackedWeights& packed_weights() {
  static PackedWeights all;
  return all;
}

bool is_parameter(const torch::Tensor& weight) {
  if (weight.is_inference()) return false;
  const at::TensorBase& owner = weight.is_view() ? weight._base() : weight;
  return owner.is_leaf() && owner.requires_grad();
}

}  // namespace

torch::Tensor packed_weight(const torch::Tensor& weight, bool transposed) {
  if (!is_parameter(weight)) return bf16_right_operand(weight, transposed);
  PackedWeights& all = packed_weights();
  c10::StorageImpl* storage = weight.storage().unsafeGetStorageImpl();
  const int64_t rows = weight.size(0);
  const WeightKey key{storage, weight.storage_offset(), rows, rows == 0 ? 0 : weight.numel() / rows, transposed};
  const auto version = static_cast<uint32_t>(weight._version());
  const std::lock_guard lock(all.mutex);
  const auto known = all.entries.find(key);
  const bool here = known != all.entries.end() && !known->second.storage.expired();
  const bool same = here && known->second.version == version;
  if (same && known->second.packed.defined()) {
    ++all.found;
    known->second.asked_again = true;
    return known->second.packed;
  }
  const bool keep = same || (here && known->second.asked_again);
  if (here) known->second.packed.reset();  // before the new one is made, not after
  if (!here) std::erase_if(all.entries, [](const auto& entry) { return entry.second.storage.expired(); });
  ++all.made;
  torch::Tensor packed = bf16_right_operand(weight, transposed);
  all.entries.insert_or_assign(
      key, PackedWeight{weight.storage().getWeakStorageImpl(), version, same, keep ? packed : torch::Tensor()});
  return packed;
}

PackedWeightStats packed_weight_stats() {
  PackedWeights& all = packed_weights();
  const std::lock_guard lock(all.mutex);
  PackedWeightStats stats{static_cast<int64_t>(all.entries.size()), 0, all.made, all.found};
  for (const auto& [key, entry] : all.entries)
    if (entry.packed.defined()) stats.bytes += static_cast<int64_t>(entry.packed.nbytes());
  return stats;
}

void forget_packed_weights() {
  PackedWeights& all = packed_weights();
  const std::lock_guard lock(all.mutex);
  all.entries.clear();
}

}  // namespace redline::models
