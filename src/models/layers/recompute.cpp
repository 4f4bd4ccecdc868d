#include "models/layers/recompute.h"

#include <ATen/autocast_mode.h>

#include "models/layers/hand_node.h"

namespace redline::models {

namespace {

// Autocast as it was in forward: backward runs outside of its scope.
class CastAsBefore {
 public:
  struct State {
    at::DeviceType device = at::kCPU;
    bool enabled = false;
    at::ScalarType type = at::kBFloat16;
  };
  static State now(at::DeviceType device) {
    return {device, at::autocast::is_autocast_enabled(device), at::autocast::get_autocast_dtype(device)};
  }
  explicit CastAsBefore(const State& state) : outer_(now(state.device)) {
    at::autocast::increment_nesting();
    put(state);
  }
  ~CastAsBefore() {
    put(outer_);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
  CastAsBefore(const CastAsBefore&) = delete;
  CastAsBefore& operator=(const CastAsBefore&) = delete;

 private:
  static void put(const State& state) {
    at::autocast::set_autocast_enabled(state.device, state.enabled);
    at::autocast::set_autocast_dtype(state.device, state.type);
  }
  State outer_;
};

struct RecomputeBackward : HandNode {
  Block block;
  CastAsBefore::State cast;
  size_t num_inputs = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    std::vector<torch::Tensor> fresh;
    for (size_t i = 0; i < num_inputs; ++i) {
      const torch::Tensor kept = input(i);
      fresh.push_back(kept.detach().requires_grad_(kept.requires_grad()));
    }
    std::vector<torch::Tensor> outputs, seeds;
    {
      const torch::AutoGradMode with_graph(true);
      const CastAsBefore as_before(cast);
      std::vector<torch::Tensor> all = block(fresh);
      for (size_t i = 0; i < all.size(); ++i) {
        if (!grads[i].defined()) continue;  // nobody read this output
        outputs.push_back(all[i]);
        seeds.push_back(grads[i]);
      }
    }
    // The parameters' gradients are added where they are; the inputs' are handed on.
    if (!outputs.empty()) torch::autograd::backward(outputs, seeds);
    torch::autograd::variable_list result;
    for (const torch::Tensor& tensor : fresh) result.push_back(tensor.grad());
    return result;
  }
  void release_intermediates() override { block = nullptr; }
};

}  // namespace

std::vector<torch::Tensor> recomputed(const std::vector<torch::Tensor>& inputs, const Block& block) {
  const auto node = make_node<RecomputeBackward>(inputs);
  if (!node) return block(inputs);
  node->block = block;
  node->cast = CastAsBefore::now(inputs[0].device().type());
  node->num_inputs = inputs.size();
  std::vector<torch::Tensor> outputs;
  {
    const torch::AutoGradMode without_graph(false);
    outputs = block(inputs);
  }
  for (torch::Tensor& output : outputs) attach(output, node);
  return outputs;
}

std::vector<torch::Tensor> recomputed(const std::vector<torch::Tensor>& inputs, const task::Context& ctx,
                                      const DrawingBlock& block) {
  const auto ids = std::make_shared<const std::vector<int64_t>>(ctx.sample_ids());
  return recomputed(inputs, [block, ids, seed = ctx.seed(), step = ctx.step(),
                             training = ctx.training()](const std::vector<torch::Tensor>& again) {
    task::Context context(seed, step, training, *ids);
    return block(again, context);
  });
}

}  // namespace redline::models
