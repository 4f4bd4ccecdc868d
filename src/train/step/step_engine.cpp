#include "train/step/step_engine.h"

#include <c10/util/Exception.h>

#include <cmath>

#include "core/check.h"
#include "measure/faults.h"
#include "train/optim/gradients.h"
#include "train/step/batches.h"
#include "train/step/eager_step.h"
#include "train/step/no_refusals.h"

namespace redline::train {

namespace {

using measure::Phase;
using measure::PhaseScope;
using measure::faults::take;

// In any layout: pictures and their kernels may have their channels last.
void poison_first(torch::Tensor tensor) {
  while (tensor.dim() > 0) tensor = tensor.select(0, 0);
  tensor.fill_(std::nan(""));
}

// With the first element of its first floating tensor not a number.
task::Batch poisoned_copy(const task::Batch& batch) {
  task::Batch copy = batch;
  for (auto& [name, tensor] : copy.tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    tensor = tensor.clone();
    poison_first(tensor);
    break;
  }
  return copy;
}

void inject_faults(Optimizer& optimizer) {
  if (take("nan.gradient"))
    for (const torch::Tensor& gradient : optimizer.gradients())
      if (gradient.defined()) {
        poison_first(gradient);
        break;
      }
  if (take("nan.optimizer") && !optimizer.state_tensors().empty()) poison_first(optimizer.state_tensors()[0]);
}

}  // namespace

StepEngine::StepEngine(const Parts& parts, const Settings& settings)
    : parts_(parts), settings_(settings), schema_(parts.task.schema()) {}

// A rank that runs out of memory stays with the others until the verdict tells all.
void StepEngine::compute(const task::Batch& piece, bool last) {
  if (shortage_.empty()) {
    try {
      parts_.program.add(piece, last);
      return;
    } catch (const c10::OutOfMemoryError& error) {
      if (parts_.agreement.alone()) throw;
      shortage_ = error.what_without_backtrace();
      short_rows_ = piece_rows_;
      short_cost_ = piece_cost_;
    }
  }
  parts_.program.skip(last);
}

// False when a stop was asked for.
bool StepEngine::run_pieces(const MemoryGuard& memory, const std::function<bool()>& stop) {
  bool begun = false;
  for (size_t i = 0;; ++i) {
    if (parts_.agreement.alone() && stop()) return false;  // several ranks stop after a step
    const task::Batch* batch = parts_.feed.get(i);
    if (batch == nullptr) break;
    const bool last_batch = static_cast<int64_t>(i) + 1 == parts_.feed.num_micro_batches();
    const bool empty = batch->size() == 0;
    if (!empty && !schema_checked_) {
      task::check_batch(schema_, *batch);
      schema_checked_ = true;
    }
    std::vector<int64_t> rows = empty ? std::vector<int64_t>{0} : memory.pieces(batch->size(), batch_cost(*batch));
    rows.resize(static_cast<size_t>(
        parts_.agreement.pieces(static_cast<int64_t>(rows.size()), memory.limit() > 0)));  // further ones are empty
    if (!begun) {
      begun = true;
      pass_.expected_pieces = parts_.feed.num_micro_batches() * static_cast<int64_t>(rows.size());
      parts_.program.begin(pass_);
    }
    if (!empty && take("nan.input")) batch = &(poisoned_ = poisoned_copy(*batch));
    if (!empty) batches_.push_back(batch);
    int64_t done = 0;
    for (size_t piece = 0; piece < rows.size(); ++piece) {
      piece_rows_ = rows[piece];
      piece_cost_ =
          empty || piece_rows_ == 0 ? 0 : std::max<int64_t>(1, batch_cost(*batch) * piece_rows_ / batch->size());
      const bool last = last_batch && piece + 1 == rows.size();
      compute(narrow_batch(*batch, schema_, done, piece_rows_), last);
      if (parts_.agreement.alone() && parts_.program.interrupted()) return false;
      done += piece_rows_;
      if (noise_ != nullptr && !last && noise_->wants_part())
        noise_->part(parts_.optimizer.gradients(), parts_.program.divisor(parts_.program.weight_so_far()), piece_rows_);
    }
  }
  REDLINE_CHECK(begun, "a step has at least one micro-batch");
  return true;
}

// Gradients and statistics finite? Also takes the gradient's norm, still of the raw gradients.
void StepEngine::check(StepVerdict& verdict) {
  const PhaseScope scope(parts_.clock, Phase::Optimiser);
  const GradientCheck check = check_gradients(parts_.optimizer.gradients());
  verdict.grad_norm = check.norm;
  std::vector<torch::Tensor> statistics;
  for (const task::BatchNormUpdate& update : verdict.batch_norm) {
    statistics.push_back(update.batch_mean);
    statistics.push_back(update.batch_var_unbiased);
  }
  verdict.finite = check.finite && !first_non_finite(statistics);
  if (!check.finite) verdict.problem = parts_.optimizer.parameters()[check.first_non_finite].name;
}

StepVerdict StepEngine::attempt(StepPass pass, const MemoryGuard& memory, const std::function<bool()>& stop) {
  parts_.optimizer.clear_gradients();
  if (noise_ != nullptr) noise_->begin();
  parts_.task.begin_attempt();
  batches_.clear();
  piece_rows_ = piece_cost_ = 0;
  shortage_.clear();
  if (take("nan.scale")) pass.loss_scale = std::nan("");
  pass_ = pass;
  StepVerdict verdict;
  try {
    if (run_pieces(memory, stop))
      verdict = parts_.program.finish();
    else
      verdict.stop = true;
  } catch (const c10::OutOfMemoryError& error) {
    verdict.out_of_memory = true;
    verdict.problem = error.what_without_backtrace();
  }
  if (!shortage_.empty()) {
    verdict = StepVerdict();
    verdict.out_of_memory = true;
    verdict.problem = shortage_;
    piece_rows_ = short_rows_;
    piece_cost_ = short_cost_;
  }
  const bool whole = !verdict.stop && !verdict.out_of_memory;
  if (whole && (verdict.weight != 0.0 || !parts_.agreement.alone())) {
    inject_faults(parts_.optimizer);
    check(verdict);
  }
  parts_.agreement.agree(verdict);
  if (verdict.stop || verdict.out_of_memory || verdict.damaged_before) {
    parts_.program.abandon();
    parts_.optimizer.clear_gradients();
    return verdict;
  }
  if (verdict.weight > 0.0) verdict.divisor = parts_.program.divisor(verdict.weight);
  verdict.grad_norm /= verdict.divisor;
  verdict.finite = verdict.finite && std::isfinite(verdict.loss()) && std::isfinite(verdict.grad_norm) &&
                   std::isfinite(verdict.divisor) && verdict.divisor != 0.0;
  if (noise_ != nullptr && verdict.finite && verdict.weight > 0.0)
    noise_->whole(parts_.optimizer.gradients(), verdict.divisor, verdict.grad_norm, verdict.samples);
  return verdict;
}

void StepEngine::commit(StepVerdict& verdict, int64_t step) {
  const PhaseScope scope(parts_.clock, Phase::Optimiser);
  const NoRefusals no_refusals;
  double divisor = verdict.divisor;
  if (settings_.clip > 0 && settings_.clip_by_value) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor gradient : parts_.optimizer.gradients())
      if (gradient.defined()) gradient.div_(divisor).clamp_(-settings_.clip, settings_.clip);
    divisor = 1.0;
  } else if (settings_.clip > 0) {
    divisor /= clip_factor(verdict.grad_norm, settings_.clip);
  }
  if (settings_.decay_steps > 0) {
    const double share = std::min(1.0, static_cast<double>(step) / static_cast<double>(settings_.decay_steps));
    const double end = settings_.decay_end;
    parts_.optimizer.set_decay_scale(end + (1.0 - end) * 0.5 * (1.0 + std::cos(M_PI * share)));
  }
  verdict.weights_finite = parts_.optimizer.step(verdict.learning_rate, divisor, parts_.task.groups_to_update());
  apply_batch_norm(verdict.batch_norm);
  if (parts_.ema != nullptr) parts_.ema->update(step + 1);
  parts_.optimizer.clear_gradients();
  verdict.committed = true;
}

}  // namespace redline::train
