// An autograd node written by hand: plain C++ state beside saved tensors, which torch::autograd::Function cannot hold.
//
//   struct MyBackward : HandNode { ... variable_list apply(variable_list&& grads) override; };
//   auto node = make_node<MyBackward>(inputs);   // null when nothing needs a gradient
//   ... compute `out` without autograd ...
//   attach(out, node);
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/torch.h>

#include <vector>

namespace redline::models {

struct HandNode : torch::autograd::Node {
  // Inputs are saved as variables (their versions are checked); undefined tensors stay undefined. The first `let_go`
  // are not kept: a node that keeps something smaller in their place does not hold their memory.
  void save_inputs(const std::vector<torch::Tensor>& inputs, size_t let_go) {
    for (size_t i = 0; i < inputs.size(); ++i)
      saved_inputs_.emplace_back(i < let_go ? torch::Tensor() : inputs[i], /*is_output=*/false);
  }
  torch::Tensor input(size_t i) const { return saved_inputs_[i].unpack(); }
  bool wants(size_t i) const { return should_compute_output(i); }
  void release_variables() override {
    for (auto& saved : saved_inputs_) saved.reset_data();
    release_intermediates();
  }
  virtual void release_intermediates() {}

 private:
  std::vector<torch::autograd::SavedVariable> saved_inputs_;
};

// One edge per input, in order; undefined inputs get an empty edge.
template <class T>
c10::intrusive_ptr<T> make_node(const std::vector<torch::Tensor>& inputs, size_t let_go = 0) {
  bool needed = false;
  for (const torch::Tensor& input : inputs) needed = needed || torch::autograd::compute_requires_grad(input);
  if (!needed) return {};
  auto node = c10::make_intrusive<T>();
  torch::autograd::edge_list edges;
  for (const torch::Tensor& input : inputs)
    edges.push_back(input.defined() ? torch::autograd::impl::gradient_edge(input) : torch::autograd::Edge());
  node->set_next_edges(std::move(edges));
  node->save_inputs(inputs, let_go);
  return node;
}

template <class T>
void attach(torch::Tensor& out, const c10::intrusive_ptr<T>& node) {
  if (node) torch::autograd::set_history(out, node);
}

}  // namespace redline::models
