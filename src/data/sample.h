// A decoded sample: named arrays. Names are the source's: "audio" (F32 [L]), "image" (U8 or F32 [3,H,W]), "label" (I64
// []), and for Parquet the column names.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/array.h"

namespace redline::data {

struct Sample {
  int64_t id = -1;  // index in the whole data set; keys every random draw
  std::vector<std::pair<std::string, Array>> fields;

  Array* find(std::string_view name) {
    for (auto& [key, value] : fields)
      if (key == name) return &value;
    return nullptr;
  }
  const Array* find(std::string_view name) const { return const_cast<Sample*>(this)->find(name); }
  void set(std::string name, Array value) {
    if (Array* slot = find(name))
      *slot = std::move(value);
    else
      fields.emplace_back(std::move(name), std::move(value));
  }
};

// Rows collated along a new first dimension, padded where rows differ.
struct Batch {
  std::vector<int64_t> sample_ids;  // one per row
  std::vector<std::pair<std::string, Array>> fields;
  int64_t items = 0, padded_items = 0;  // of the field that pads: real elements, and with padding
  int64_t epoch = 0, step = 0;          // position in the plan: optimiser step within the epoch
  int32_t micro_batch = 0, num_micro_batches = 1;
  int32_t num_bad = 0;  // rows that are substitutes

  const Array* find(std::string_view name) const {
    for (const auto& [key, value] : fields)
      if (key == name) return &value;
    return nullptr;
  }
};

}  // namespace redline::data
