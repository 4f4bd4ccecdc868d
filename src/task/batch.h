// A micro-batch on the device: named tensors, first dimension = samples.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

namespace redline::task {

struct Batch {
  std::map<std::string, torch::Tensor> tensors;
  std::vector<int64_t> sample_ids;  // one per row: the keys of random draws
  int64_t items = 0, padded_items = 0;

  int64_t size() const { return static_cast<int64_t>(sample_ids.size()); }
  bool has(const std::string& name) const { return tensors.count(name) != 0; }
  // Throws DataError naming the missing tensor and those that are there.
  const torch::Tensor& at(const std::string& name) const;
};

// What a task expects of a batch; checked once per run on the first batch and by `redline probe` on every one.
struct TensorSpec {
  std::string name;
  torch::ScalarType dtype = torch::kFloat32;
  // -1 = any; -2 = the batch dimension, equal in all tensors of the batch.
  std::vector<int64_t> shape;
  bool optional = false;
  std::string sentence;
};
struct BatchSchema {
  std::vector<TensorSpec> tensors;
};
// Throws DataError: which tensor, expected dtype and shape, found.
void check_batch(const BatchSchema& schema, const Batch& batch);

}  // namespace redline::task
