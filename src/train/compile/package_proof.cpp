#include "train/compile/package_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/time.h"
#include "device/autocast.h"
#include "train/compile/compiled_package.h"
#include "train/step/step_program.h"

namespace redline::train {

namespace {

constexpr int kRaceTurns = 5;

// What two ways to compute the same may differ by, relative: a model whose eager step is held against itself on another
// number of threads differs by 1 % in its gradients. A wrong program differs by far more.
struct Tolerance {
  double loss, gradients, statistics;
};
Tolerance tolerance_of(Precision precision) {
  return precision == Precision::Fp32 ? Tolerance{1e-3, 3e-2, 3e-2} : Tolerance{2e-2, 3e-1, 3e-1};
}

double norm_of(const torch::Tensor& x) { return x.detach().to(torch::kFloat64).norm().item<double>(); }

double distance(const torch::Tensor& found, const torch::Tensor& wanted) {
  return norm_of(found.detach().to(torch::kFloat64) - wanted.detach().to(torch::kFloat64));
}

bool all_finite(const StepNumbers& numbers) {
  const auto finite = [](const torch::Tensor& x) { return !x.defined() || std::isfinite(norm_of(x)); };
  return finite(numbers.value) && finite(numbers.weight) &&
         std::all_of(numbers.gradients.begin(), numbers.gradients.end(), finite) &&
         std::all_of(numbers.norms.begin(), numbers.norms.end(), [&](const task::BatchNormUpdate& norm) {
           return finite(norm.batch_mean) && finite(norm.batch_var_unbiased);
         });
}

std::string statistics_problem(const StepNumbers& found, const StepNumbers& wanted, double tolerance) {
  if (found.norms.size() != wanted.norms.size())
    return fmt::format("it has statistics of {} BatchNorms instead of {}", found.norms.size(), wanted.norms.size());
  for (const task::BatchNormUpdate& norm : wanted.norms) {
    const auto same = std::find_if(found.norms.begin(), found.norms.end(), [&](const task::BatchNormUpdate& other) {
      return other.running_mean.is_same(norm.running_mean);
    });
    if (same == found.norms.end()) return "it lacks the statistics of a BatchNorm";
    const double size = norm_of(norm.batch_mean) + norm_of(norm.batch_var_unbiased.clamp_min(0).sqrt()) + 1e-12;
    const double mean_off = distance(same->batch_mean, norm.batch_mean) / size,
                 variance_off = distance(same->batch_var_unbiased, norm.batch_var_unbiased) /
                                (norm_of(norm.batch_var_unbiased) + 1e-12);
    const bool equal = mean_off <= tolerance && variance_off <= tolerance && same->momentum == norm.momentum &&
                       same->num_batches_tracked.defined() == norm.num_batches_tracked.defined();
    if (!equal)
      return fmt::format("the statistics of a BatchNorm of {} channels are off by {:.2g} and {:.2g}",
                         norm.batch_mean.numel(), mean_off, variance_off);
  }
  return {};
}

// Contexts of their own, with the keys of the pass: neither way leaves a trace in the step.
task::Context quiet_context(const ProvedPiece& piece) {
  task::Context context(piece.pass.seed, piece.pass.step, /*training=*/true, piece.batch.sample_ids);
  context.device = piece.device;
  context.counts = false;
  return context;
}

std::vector<std::pair<std::string, torch::Tensor>> learning_parameters(task::Task& task) {
  std::vector<std::pair<std::string, torch::Tensor>> all;
  for (auto& [name, tensor] : named_state(task.module()))
    if (tensor.requires_grad()) all.emplace_back(name, tensor);
  return all;
}

// As the loop does it: forward under autocast, where this is called, and backward without; the step's own stay.
std::vector<torch::Tensor> eager_gradients(task::Task& task, const torch::Tensor& value,
                                           const std::vector<torch::Tensor>& parameters, const ProvedPiece& piece) {
  const GradientsAside aside(task.module());
  const device::AutocastScope backward(device::kind_of(piece.device), Precision::Fp32);
  torch::autograd::backward(
      {value}, {torch::full({}, piece.pass.loss_scale, value.options().requires_grad(false)).view(value.sizes())});
  std::vector<torch::Tensor> gradients;
  for (const torch::Tensor& parameter : parameters) gradients.push_back(parameter.grad());
  return gradients;
}

double median_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

}  // namespace

Proof compare_steps(const StepNumbers& found, const StepNumbers& wanted, Precision precision) {
  Proof proof;
  if (!all_finite(wanted)) {
    proof.decided = false;
    return proof;
  }
  const Tolerance tolerance = tolerance_of(precision);
  proof.loss_off = distance(found.value.reshape({}), wanted.value.reshape({})) / std::max(1e-6, norm_of(wanted.value));
  double off = 0, size = 0;
  std::vector<double> each_off(wanted.gradients.size(), 0), each_size(wanted.gradients.size(), 0);
  for (size_t i = 0; i < wanted.gradients.size(); ++i) {
    const torch::Tensor &a = found.gradients[i], &b = wanted.gradients[i];
    if (a.defined() != b.defined()) {
      proof.problem = fmt::format("{} {} a gradient", wanted.names[i], b.defined() ? "lacks" : "should not have");
      return proof;
    }
    if (!b.defined()) continue;
    each_off[i] = distance(a, b), each_size[i] = norm_of(b);
    off += each_off[i] * each_off[i], size += each_size[i] * each_size[i];
  }
  size = std::sqrt(size);
  proof.gradients_off = std::sqrt(off) / std::max(1e-12, size);
  // Written so that a number that is none is a difference.
  if (!(proof.loss_off <= tolerance.loss && proof.gradients_off <= tolerance.gradients)) {
    const auto worst = std::max_element(each_off.begin(), each_off.end());
    proof.problem = fmt::format("loss off by {:.2g}, gradients by {:.2g}{}", proof.loss_off, proof.gradients_off,
                                worst == each_off.end() || *worst == 0
                                    ? ""
                                    : ", most in " + wanted.names[static_cast<size_t>(worst - each_off.begin())]);
  } else if (!(distance(found.weight.reshape({}), wanted.weight.reshape({})) <= 1e-6 * norm_of(wanted.weight))) {
    proof.problem = "its weight is not the task's";
  } else {
    // One parameter can be wrong altogether and hardly show in the whole. What is small beside the whole may be noise.
    for (size_t i = 0; i < each_off.size(); ++i)
      if (each_off[i] > 0.5 * each_size[i] && each_off[i] > 0.1 * tolerance.gradients * size) {
        proof.problem = fmt::format("the gradient of {} is off by {:.2g}", wanted.names[i],
                                    each_off[i] / std::max(1e-12, each_size[i]));
        return proof;
      }
    proof.problem = statistics_problem(found, wanted, tolerance.statistics);
  }
  return proof;
}

Proof prove_package(task::Task& task, CompiledPackage& package, const ProvedPiece& piece) {
  std::vector<torch::Tensor> parameters;
  StepNumbers wanted, found;
  for (auto& [name, tensor] : learning_parameters(task)) {
    wanted.names.push_back(name);
    parameters.push_back(tensor);
  }
  {
    task::Context context = quiet_context(piece);
    const task::Loss loss = task.loss(piece.batch, context);
    wanted.gradients = eager_gradients(task, loss.value, parameters, piece);
    wanted.value = loss.value.detach();
    wanted.weight = loss.weight;
    wanted.norms = std::move(context.batch_norm_updates());
  }
  task::Context context = quiet_context(piece);
  CompiledPackage::Result result = package.run(piece.prepared, context, piece.pass.loss_scale);
  found.value = result.part.loss.value;
  found.weight = result.part.loss.weight;
  found.norms = std::move(context.batch_norm_updates());
  found.gradients.resize(parameters.size());
  for (size_t i = 0; i < result.gradients.size(); ++i)
    for (size_t k = 0; k < parameters.size(); ++k)
      if (parameters[k].is_same(package.parameters()[i])) found.gradients[k] = result.gradients[i];
  return compare_steps(found, wanted, piece.pass.precision);
}

// Turn by turn: what the task's own step takes, and what the package takes with what is made before it.
RaceTimes race_package(task::Task& task, CompiledPackage& package, const ProvedPiece& piece) {
  std::vector<double> eager, compiled;
  for (int turn = 0; turn <= kRaceTurns; ++turn)
    for (const bool eagerly : {turn % 2 == 0, turn % 2 != 0}) {
      task::Context context = quiet_context(piece);
      const int64_t begin = now_ns();
      if (eagerly)
        eager_gradients(task, task.loss(piece.batch, context).value, package.parameters(), piece);
      else
        package.run(task.compiled_part()->before(piece.batch, context), context, piece.pass.loss_scale);
      if (turn > 0) (eagerly ? eager : compiled).push_back(seconds_between(begin, now_ns()));
    }
  return {median_of(eager), median_of(compiled)};
}

}  // namespace redline::train
