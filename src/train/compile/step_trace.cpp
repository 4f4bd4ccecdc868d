#include "train/compile/step_trace.h"

#include <ATen/autocast_mode.h>
#include <fmt/format.h>

#include <set>

#include "core/error.h"
#include "device/autocast.h"

namespace redline::train {

namespace {

using nlohmann::json;

// Draws outside the recording, each spec once: two uses of one name are the same numbers.
class DrawsAsInputs : public task::DrawSource {
 public:
  DrawsAsInputs(OperatorRecorder& recorder, const task::Context& keys) : recorder_(recorder), keys_(keys) {}

  torch::Tensor take(const task::DrawSpec& spec) override {
    for (size_t i = 0; i < specs.size(); ++i)
      if (specs[i] == spec) return tensors[i];
    const OperatorRecorder::Pause quiet;
    tensors.push_back(keys_.draw(spec).to(keys_.device));
    specs.push_back(spec);
    recorder_.input(tensors.back());
    return tensors.back();
  }

  std::vector<task::DrawSpec> specs;
  std::vector<torch::Tensor> tensors;

 private:
  OperatorRecorder& recorder_;
  const task::Context& keys_;
};

class Tracing {
 public:
  Tracing(task::Task& task, const task::Tensors& prepared, const std::vector<int64_t>& ids, const TraceOptions& options)
      : task_(task), prepared_(prepared), options_(options), ids_(ids), state_(named_state(task.module())) {
    for (const auto& [name, tensor] : state_) recorder_.input(tensor);
    for (const auto& [name, tensor] : prepared_) recorder_.input(tensor);
    scale_ = torch::ones({}, torch::TensorOptions(torch::kFloat32).device(options.device));
    recorder_.input(scale_);
  }

  TracedStep run() {
    task::Context context(options_.seed, /*step=*/0, /*training=*/true, ids_);
    context.device = options_.device;
    context.want_outputs(options_.wants_outputs);
    context.counts = false;
    const task::Context keys = context;
    DrawsAsInputs draws(recorder_, keys);
    context.trace(&draws);
    task::PartResult result;
    std::vector<torch::Tensor> gradients, parameters;
    for (const auto& [name, tensor] : state_)
      if (tensor.requires_grad()) parameters.push_back(tensor);
    recorder_.run([&] {
      {
        const device::AutocastScope precision(device::kind_of(options_.device), options_.precision);
        result = task_.compiled_part()->compute(prepared_, context);
      }
      if (!result.loss.value.defined() || !result.loss.value.requires_grad())
        throw CannotCompile("its loss has no gradient");
      // As the loop's backward: without autocast, in whose scope a piece that is recorded may lie.
      const device::AutocastScope backward(device::kind_of(options_.device), Precision::Fp32);
      gradients = torch::autograd::grad({result.loss.value}, parameters,
                                        {scale_.to(result.loss.value.scalar_type()).view(result.loss.value.sizes())},
                                        /*retain_graph=*/false, /*create_graph=*/false, /*allow_unused=*/true);
    });
    add_inputs(draws);
    add_outputs(result, context, parameters, gradients);
    step_.program = recorder_.take();
    return std::move(step_);
  }

 private:
  void add_input(const torch::Tensor& tensor) {
    json layout = layout_json(tensor);
    layout["number"] = recorder_.input(tensor);
    step_.inputs.push_back(std::move(layout));
  }

  void add_inputs(const DrawsAsInputs& draws) {
    for (const auto& [name, tensor] : state_)
      if (recorder_.was_read(recorder_.input(tensor))) {
        step_.signature.weights.push_back(name);
        add_input(tensor);
      }
    for (const auto& [name, tensor] : prepared_)
      if (recorder_.was_read(recorder_.input(tensor))) {
        step_.signature.prepared.push_back(name);
        add_input(tensor);
      }
    for (size_t i = 0; i < draws.specs.size(); ++i) {
      step_.signature.draws.push_back(draws.specs[i]);
      add_input(draws.tensors[i]);
    }
    add_input(scale_);
  }

  void add_output(const torch::Tensor& tensor) { step_.outputs.push_back(recorder_.number_of(tensor)); }

  void add_named(const task::Tensors& tensors, std::vector<std::string>& names) {
    for (const auto& [name, tensor] : tensors) {
      names.push_back(name);
      add_output(tensor);
    }
  }

  std::string name_of(const torch::Tensor& wanted) const {
    if (!wanted.defined()) return {};
    for (const auto& [name, tensor] : state_)
      if (tensor.is_same(wanted)) return name;
    throw CannotCompile("a BatchNorm in it has statistics that are no buffers of the module");
  }

  void add_outputs(const task::PartResult& result, task::Context& context, const std::vector<torch::Tensor>& parameters,
                   const std::vector<torch::Tensor>& gradients) {
    StepSignature& s = step_.signature;
    add_output(result.loss.value);
    add_output(result.loss.weight);
    add_named(result.loss.metrics, s.metrics);
    add_named(result.notes, s.notes);
    add_named(context.outputs(), s.outputs);
    for (const task::BatchNormUpdate& update : context.batch_norm_updates()) {
      s.norms.push_back({name_of(update.running_mean), name_of(update.running_var), name_of(update.num_batches_tracked),
                         update.momentum});
      add_output(update.batch_mean);
      add_output(update.batch_var_unbiased);
    }
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      s.gradients.push_back(name_of(parameters[i]));
      add_output(gradients[i]);
    }
  }

  task::Task& task_;
  const task::Tensors& prepared_;
  TraceOptions options_;
  std::vector<int64_t> ids_;
  std::vector<std::pair<std::string, torch::Tensor>> state_;
  OperatorRecorder recorder_;
  torch::Tensor scale_;
  TracedStep step_;
};

}  // namespace

std::vector<std::pair<std::string, torch::Tensor>> named_state(torch::nn::Module& module) {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  std::set<const c10::TensorImpl*> seen;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) all.emplace_back(name, tensor);
  };
  for (const auto& item : module.named_parameters()) add(item.key(), item.value());
  for (const auto& item : module.named_buffers()) add(item.key(), item.value());
  return all;
}

GradientsAside::GradientsAside(torch::nn::Module& module) {
  for (torch::Tensor& parameter : module.parameters()) {
    kept_.emplace_back(parameter, parameter.grad());
    parameter.mutable_grad() = torch::Tensor();
  }
}

GradientsAside::~GradientsAside() {
  for (auto& [parameter, gradient] : kept_) parameter.mutable_grad() = gradient;
}

json TracedStep::text() const {
  json constants = json::array();
  for (const auto& [number, tensor] : program.constants) {
    json layout = layout_json(tensor);
    layout["number"] = number;
    constants.push_back(std::move(layout));
  }
  return {{"inputs", inputs},
          {"constants", std::move(constants)},
          {"calls", program.calls},
          {"outputs", outputs},
          {"own_operators", program.own_operators}};
}

TracedStep trace_step(task::Task& task, const task::Tensors& prepared, const std::vector<int64_t>& sample_ids,
                      const TraceOptions& options) {
  // Within a mixed forward pass weights may have been cast already, and lie in a cache: a program would hold those
  // casts as constants. What is cast here is nobody else's either.
  struct OwnCasts {
    OwnCasts() { at::autocast::clear_cache(); }
    ~OwnCasts() { at::autocast::clear_cache(); }
  } const own_casts;
  const GradientsAside aside(task.module());
  try {
    return Tracing(task, prepared, sample_ids, options).run();
  } catch (const InternalError& error) {  // a draw that a traced pass cannot have
    throw CannotCompile(error.what());
  }
}

}  // namespace redline::train
