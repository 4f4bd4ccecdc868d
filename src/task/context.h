// What the runtime gives a model for one forward pass: the only source of randomness, where BatchNorm statistics go
// until commit, named outputs for probe and predict, and the collective between ranks.
//
// Draws are Philox keyed by (seed, step, sample id, operation, element), so splitting a batch, another worker count or
// another rank count draws the same numbers. Masks are regenerated in backward, not stored.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/philox.h"
#include "task/keyed_random.h"

namespace redline::task {

// Implemented in train/ranks; null when there is one rank.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual torch::Tensor all_reduce_sum(const torch::Tensor& value) = 0;
};

// A running statistic update that waits for commit (design: compute, then commit).
struct BatchNormUpdate {
  torch::Tensor running_mean, running_var, num_batches_tracked;  // buffers of the module (the last may be undefined)
  torch::Tensor batch_mean, batch_var_unbiased;
  double momentum = 0.1;
};

// A random tensor that a pass asks for: all that it is made of but seed, step and samples.
struct DrawSpec {
  enum class Kind { Dropout, Uniform, Normal };  // Dropout: bool, true where an element is kept
  Kind kind = Kind::Uniform;
  std::string operation;
  std::vector<int64_t> shape, padded_dims;
  double p = 0.0;  // of dropout
  bool operator==(const DrawSpec&) const = default;
};
// Hands out tensors in place of draws: how the draws of a traced pass become inputs of what is compiled from it.
class DrawSource {
 public:
  virtual ~DrawSource() = default;
  virtual torch::Tensor take(const DrawSpec& spec) = 0;
};

class Context {
 public:
  Context(uint64_t seed, int64_t step, bool training, const std::vector<int64_t>& sample_ids)
      : seed_(seed), step_(step), training_(training), sample_ids_(&sample_ids) {}

  bool training() const { return training_; }
  int64_t step() const { return step_; }
  uint64_t seed() const { return seed_; }
  const std::vector<int64_t>& sample_ids() const { return *sample_ids_; }

  // Zeroes elements with probability p and scales the rest by 1/(1-p); identity when not training or p == 0. p is
  // rounded to the nearest 1/65536 (16 random bits per element). x is [B, ...] with B = sample_ids().size(), or [B * k,
  // ...] with k consecutive rows per sample (cameras, windows). `operation` names the place in the model: two uses of
  // one name in one pass draw the same numbers. An element's key is its index inside the sample, so a tensor whose
  // inner dimensions depend on padding (e.g. [B, H, T, T]) must name them in `padded_dims`: their strides in the key
  // are then fixed. Dimension 1 of [B, T, C] needs no mention, [B, C, T] needs {2}.
  torch::Tensor dropout(const torch::Tensor& x, double p, std::string_view operation,
                        std::vector<int64_t> padded_dims = {});
  // What a fused kernel needs to drop the same elements itself; not active when not training or p == 0.
  DropoutDraw dropout_draw(double p, std::string_view operation) const;
  // Drops whole rows (stochastic depth per sample) with the same keying; scales by 1/(1-p).
  torch::Tensor drop_path(const torch::Tensor& x, double p, std::string_view operation);
  // [B, ...] draws; float32 on the CPU or the device of the run.
  torch::Tensor uniform(std::vector<int64_t> shape, std::string_view operation, std::vector<int64_t> padded_dims = {});
  torch::Tensor normal(std::vector<int64_t> shape, std::string_view operation, std::vector<int64_t> padded_dims = {});
  // The tensor of a spec, with this pass's keys: what dropout(), uniform() and normal() use when nothing is traced.
  torch::Tensor draw(const DrawSpec& spec) const;
  // Scalar draws on the host for one sample, or one for the whole step (sample = -1).
  KeyedStream stream(int64_t sample, std::string_view operation) const;

  // From here on draws come from there, and layers use LibTorch's operators alone, which a compiler can see through.
  // Draws on the host and dropout inside kernels are refused then (InternalError).
  void trace(DrawSource* draws) { draws_ = draws; }
  bool tracing() const { return draws_ != nullptr; }

  void defer(BatchNormUpdate update) { batch_norm_updates_.push_back(std::move(update)); }
  std::vector<BatchNormUpdate>& batch_norm_updates() { return batch_norm_updates_; }

  // Named outputs: kept only when asked for (probe, predict), so that the hot path holds no extra tensors.
  void want_outputs(bool on) { want_outputs_ = on; }
  bool wants_outputs() const { return want_outputs_; }
  void output(const std::string& name, const torch::Tensor& value) {
    if (want_outputs_) outputs_[name] = value.detach();
  }
  std::map<std::string, torch::Tensor>& outputs() { return outputs_; }

  Collective* collective = nullptr;
  // False: a sample in place of none, so that this rank takes part in what ranks do together. A task takes no note of
  // it.
  bool counts = true;
  torch::Device device = torch::kCPU;  // where uniform and normal put their draws

 private:
  torch::Tensor draw_or_take(const DrawSpec& spec) const;

  uint64_t seed_;
  int64_t step_;
  bool training_;
  const std::vector<int64_t>* sample_ids_;
  DrawSource* draws_ = nullptr;
  bool want_outputs_ = false;
  std::vector<BatchNormUpdate> batch_norm_updates_;
  std::map<std::string, torch::Tensor> outputs_;
};

}  // namespace redline::task
