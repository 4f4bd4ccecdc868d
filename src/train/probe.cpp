#include "train/probe.h"

#include <fmt/format.h>

#include <numeric>

#include "core/error.h"
#include "train/compile/compiled_step.h"
#include "train/optim/gradients.h"
#include "train/optim/parameter_rules.h"
#include "train/step/batches.h"
#include "train/training_run.h"
#include "train/weights.h"

namespace redline::train {

namespace {

int64_t batch_rows(const std::map<std::string, torch::Tensor>& tensors, const task::BatchSchema& schema,
                   const std::filesystem::path& path) {
  for (const task::TensorSpec& spec : schema.tensors) {
    const auto found = tensors.find(spec.name);
    if (found == tensors.end()) continue;
    for (size_t i = 0; i < spec.shape.size() && static_cast<int64_t>(i) < found->second.dim(); ++i)
      if (spec.shape[i] == -2) return found->second.size(static_cast<int64_t>(i));
  }
  throw DataError(fmt::format("{} holds no tensor that tells how many samples the batch has.", path.string()));
}

// Widening only: float16 to float32, int32 to int64, uint8 to bool never.
torch::Tensor widened(const torch::Tensor& tensor, torch::ScalarType wanted) {
  const torch::ScalarType found = tensor.scalar_type();
  const bool floats = tensor.is_floating_point() && torch::isFloatingType(wanted) &&
                      c10::elementSize(wanted) >= c10::elementSize(found);
  const bool integers = torch::isIntegralType(found, /*includeBool=*/false) && torch::isIntegralType(wanted, false) &&
                        c10::elementSize(wanted) >= c10::elementSize(found);
  return floats || integers ? tensor.to(wanted) : tensor;
}

// The rate stays what `lr` says: a schedule belongs to a run's length, which a few steps on one batch do not have.
Schedule probe_schedule(const Job& job, int64_t steps) {
  OptimConfig optim = job.optim();
  optim.scale_lr = "none";
  optim.sched.reset();
  return make_schedule(optim, {steps, 1, 1, 1.0});
}

}  // namespace

task::Batch read_batch(const std::filesystem::path& path, const task::BatchSchema& schema) {
  SafetensorsFile file = read_safetensors(path);
  task::Batch batch;
  const int64_t rows = batch_rows(file.tensors, schema, path);
  for (auto& [name, tensor] : file.tensors) {
    for (const task::TensorSpec& spec : schema.tensors)
      if (spec.name == name) tensor = widened(tensor, spec.dtype);
    batch.tensors.emplace(name, tensor);
  }
  batch.sample_ids.resize(static_cast<size_t>(rows));
  std::iota(batch.sample_ids.begin(), batch.sample_ids.end(), 0);
  return batch;
}

ProbeResult run_probe(const Job& job, const ProbeInput& input) {
  prepare_process(job);
  const std::unique_ptr<task::Task> task = job.build_task();
  const WeightsReport weights = load_weights(task->module(), read_weights(input.weights));
  if (!weights.complete())
    throw CheckpointError(
        fmt::format("The weights in {} do not fit the model: {}.", input.weights.string(), weights.text(32)));
  const task::BatchSchema schema = task->schema();
  task::Batch batch = read_batch(input.batch, schema);
  task::check_batch(schema, batch);
  const torch::Device device = job.device();
  for (auto& [name, tensor] : batch.tensors) {
    tensor = tensor.to(device);
    if (job.channels_last(*task) && tensor.dim() == 4 && tensor.is_floating_point())
      tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  }

  ProbeResult result;
  Optimizer optimizer(job.optim(),
                      apply_parameter_rules(task->module(), task->parameter_groups(), job.optim().rules()));
  LossScaler scaler(job.trainer().amp, job.precision() == Precision::Fp16Mixed);
  const Schedule schedule = probe_schedule(job, input.steps);
  measure::StepClock clock;
  Alone agreement;
  CompiledStep compute(*task, device, clock, agreement, nullptr, compile_settings(job.trainer(), job.machine()),
                       [](const std::string&, const measure::FieldList&) {});
  task->module().train();
  for (int64_t step = 0; step < input.steps; ++step) {
    optimizer.clear_gradients();
    compute.begin({job.seed(), step, job.precision(), scaler.scale(), 1});
    compute.want_outputs(step == 0);
    compute.add(batch, /*last=*/true);
    if (step == 0)
      for (const auto& [name, tensor] : compute.outputs()) result.tensors[name] = tensor.to(torch::kCPU).contiguous();
    const StepVerdict outcome = compute.finish();
    const double divisor = outcome.weight > 0 ? compute.divisor(outcome.weight) : 1.0;
    result.losses.push_back(outcome.loss());
    if (step == 0)
      for (const OptimizedParameter& p : optimizer.parameters())
        if (p.value.grad().defined())
          result.tensors["grad." + p.name] = (p.value.grad() / divisor).to(torch::kCPU).contiguous();
    const GradientCheck check = check_gradients(optimizer.gradients());
    scaler.update(!check.finite);
    if (!check.finite) continue;
    optimizer.step(schedule.at(step), divisor / clip_factor(check.norm / divisor, job.trainer().gradient_clip_val),
                   task->groups_to_update());
    apply_batch_norm(outcome.batch_norm);
    task->committed(step + 1);
  }
  result.tensors["losses"] = torch::tensor(result.losses, torch::kFloat64);
  return result;
}

}  // namespace redline::train
