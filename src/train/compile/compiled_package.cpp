#include "train/compile/compiled_package.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <set>

#include "core/check.h"
#include "device/autocast.h"

namespace redline::train {

namespace {

// The gradients exist before backward is asked for; what is left is the weight of the piece.
struct CompiledBackward : torch::autograd::Node {
  std::vector<torch::Tensor> gradients;
  double scale = 1.0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& seeds) override {
    const torch::NoGradGuard no_grad;
    if (seeds[0].device().is_cpu()) {
      const double factor = seeds[0].item<double>() / scale;
      if (factor != 1.0)
        for (torch::Tensor& gradient : gradients) gradient.mul_(factor);
    } else {
      const torch::Tensor factor = seeds[0].to(torch::kFloat32) / scale;
      for (torch::Tensor& gradient : gradients) gradient.mul_(factor);
    }
    return std::move(gradients);
  }
  void release_variables() override { gradients.clear(); }
  std::string name() const override { return "CompiledBackward"; }
};

// What a tensor lies in; null: nothing.
const void* memory_of(const torch::Tensor& tensor) { return tensor.has_storage() ? tensor.storage().data() : nullptr; }

}  // namespace

CompiledPackage::CompiledPackage(const std::filesystem::path& file, StepSignature signature, torch::nn::Module& module)
    : signature_(std::move(signature)) {
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : named_state(module)) state[name] = tensor;
  const auto get = [&](const std::string& name) { return name.empty() ? torch::Tensor() : state.at(name); };
  for (const std::string& name : signature_.weights) weights_.push_back(get(name));
  for (const std::string& name : signature_.gradients) parameters_.push_back(get(name));
  for (const StepSignature::Norm& norm : signature_.norms)
    norms_.push_back({get(norm.mean), get(norm.variance), get(norm.count), {}, {}, norm.momentum});
  loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(file.string(), "model",
                                                                      /*run_single_threaded=*/true);
}

CompiledPackage::~CompiledPackage() = default;

CompiledPackage::Result CompiledPackage::run(const task::Tensors& prepared, task::Context& context, double loss_scale) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> inputs = weights_;
  for (const std::string& name : signature_.prepared) inputs.push_back(prepared.at(name));
  for (const task::DrawSpec& spec : signature_.draws) inputs.push_back(context.draw(spec).to(context.device));
  inputs.push_back(torch::full({}, loss_scale, torch::TensorOptions(torch::kFloat32).device(context.device)));
  std::vector<torch::Tensor> all;
  {
    // Its casts are in the program: nothing that it calls is cast once more.
    const device::AutocastScope as_recorded(device::kind_of(context.device), Precision::Fp32);
    all = loader_->run(inputs);
  }
  size_t next = 0;
  const auto take = [&] {
    REDLINE_CHECK(next < all.size(), "a package has the outputs of its signature");
    return std::move(all[next++]);
  };
  Result result;
  result.part.loss.value = take();
  result.part.loss.weight = take();
  for (const std::string& name : signature_.metrics) result.part.loss.metrics[name] = take();
  for (const std::string& name : signature_.notes) result.part.notes[name] = take();
  for (const std::string& name : signature_.outputs) result.outputs[name] = take();
  for (task::BatchNormUpdate update : norms_) {
    update.batch_mean = take();
    update.batch_var_unbiased = take();
    context.defer(std::move(update));
  }
  // Gradients are scaled where they lie, and the next piece's are added there: each needs memory of its own. A
  // program's outputs may share it: one gradient of two parameters, a gradient that is an input, a view that repeats
  // one number.
  std::set<const void*> taken;
  for (const torch::Tensor& input : inputs) taken.insert(memory_of(input));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    torch::Tensor gradient = take();
    if (!taken.insert(memory_of(gradient)).second || !gradient.is_non_overlapping_and_dense())
      gradient = gradient.clone(at::MemoryFormat::Contiguous);
    result.gradients.push_back(std::move(gradient));
  }
  return result;
}

torch::Tensor with_gradients(const torch::Tensor& value, const std::vector<torch::Tensor>& parameters,
                             std::vector<torch::Tensor> gradients, double loss_scale) {
  torch::Tensor loss = value.detach();
  auto node = c10::make_intrusive<CompiledBackward>();
  node->set_next_edges(torch::autograd::collect_next_edges(parameters));
  node->gradients = std::move(gradients);
  node->scale = loss_scale;
  torch::autograd::set_history(loss, node);
  return loss;
}

}  // namespace redline::train
