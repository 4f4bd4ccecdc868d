#include "train/loop/validation.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include "core/error.h"
#include "device/autocast.h"
#include "train/step/batches.h"

namespace redline::train {

namespace {

constexpr int64_t kValidationStep = -1;  // keys draws: the same in every validation

struct ValidationSums {
  double weight = 0, loss = 0;
  std::map<std::string, double> metrics;
};

void add_piece(task::Task& task, const task::Batch& piece, const ValidationSettings& settings, ValidationSums& sums) {
  task::Context context(settings.seed, kValidationStep, /*training=*/false, piece.sample_ids);
  context.device = settings.device;
  task::Loss loss;
  {
    const device::AutocastScope precision(device::kind_of(settings.device), settings.precision);
    loss = task.loss(piece, context);
  }
  const double weight = loss.weight.item<double>();
  if (weight == 0.0) return;
  sums.weight += weight;
  sums.loss += loss.value.item<double>() * weight;
  for (const auto& [name, metric] : loss.metrics) sums.metrics[name] += metric.item<double>() * weight;
}

// Pieces of a batch that has already fed the task's whole-set metrics must not be run twice, so a failed piece is
// split, not the batch.
void add_rows(task::Task& task, const task::Batch& batch, const task::BatchSchema& schema,
              const ValidationSettings& settings, MemoryGuard& memory, ValidationSums& sums) {
  int64_t begin = 0;
  const int64_t cost_per_row = std::max<int64_t>(1, batch_cost(batch) / std::max<int64_t>(1, batch.size()));
  while (begin < batch.size()) {
    const int64_t left = batch.size() - begin;
    const int64_t rows = memory.pieces(left, left * cost_per_row)[0];
    try {
      add_piece(task, narrow_batch(batch, schema, begin, rows), settings, sums);
      begin += rows;
    } catch (const c10::OutOfMemoryError& error) {
      if (!memory.on_out_of_memory(rows, rows * cost_per_row))
        throw OutOfMemoryError(fmt::format("Validation ran out of memory on a single sample (id {}): {}",
                                           batch.sample_ids[static_cast<size_t>(begin)],
                                           error.what_without_backtrace()));
    }
  }
}

// Every sample is some rank's, once: sums are added, and a validation is whole when all ranks' parts are.
void add_over_ranks(const task::Task& task, Agreement& agreement, ValidationResult& result, ValidationSums& sums) {
  std::vector<std::string> names;
  for (const task::MetricInfo& metric : task.metrics()) names.push_back(metric.name);
  std::vector<double> mine{result.complete ? 0.0 : 1.0, static_cast<double>(result.samples), sums.weight, sums.loss,
                           static_cast<double>(result.batches)};
  const size_t first_metric = mine.size();
  for (const std::string& name : names) {
    const auto found = sums.metrics.find(name);
    mine.push_back(found != sums.metrics.end() ? 1.0 : 0.0);
    mine.push_back(found != sums.metrics.end() ? found->second : 0.0);
  }
  if (agreement.alone()) {
    result.complete = result.complete && result.batches > 0;
    return;
  }
  const std::vector<double> all = agreement.sum(mine);
  result.complete = all[0] == 0.0 && all[4] > 0.0;  // all ranks say the same: what follows is collective
  result.samples = static_cast<int64_t>(all[1]);
  sums = {all[2], all[3], {}};
  for (size_t i = 0; i < names.size(); ++i)
    if (all[first_metric + 2 * i] > 0.0) sums.metrics[names[i]] = all[first_metric + 2 * i + 1];
}

std::vector<double> whole_set_sums(task::Task& task, Agreement& agreement) {
  return agreement.sum(task.take_validation_sums());
}

class EvaluationMode {
 public:
  explicit EvaluationMode(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~EvaluationMode() { module_.train(was_training_); }

 private:
  torch::nn::Module& module_;
  bool was_training_;
};

}  // namespace

ValidationResult validate(task::Task& task, data::Loader& loader, const ValidationSettings& settings,
                          MemoryGuard& memory, device::CopyStream* stream) {
  const EvaluationMode mode(task.module());
  const torch::NoGradGuard no_grad;
  const task::BatchSchema schema = task.schema();
  task.take_validation_sums();  // what an aborted validation may have left behind
  loader.seek(0, 0);
  const int64_t limit = std::min(loader.steps_per_epoch(), settings.limit_batches.of(loader.steps_per_epoch()));
  Alone alone;
  Agreement& agreement = settings.agreement != nullptr ? *settings.agreement : alone;
  ValidationResult result;
  ValidationSums sums;
  while (result.batches < limit) {
    if (settings.stop && settings.stop()) {
      result.complete = false;
      break;
    }
    const std::optional<data::Batch> batch = loader.next();
    if (!batch) break;
    if (batch->micro_batch + 1 == batch->num_micro_batches) ++result.batches;
    if (batch->sample_ids.empty()) continue;
    add_rows(task, to_task_batch(*batch, stream), schema, settings, memory, sums);
    result.samples += static_cast<int64_t>(batch->sample_ids.size());
  }
  add_over_ranks(task, agreement, result, sums);
  if (!result.complete) return result;
  if (sums.weight > 0) {
    result.metrics["val_loss"] = sums.loss / sums.weight;
    for (const auto& [name, sum] : sums.metrics) result.metrics["val_" + name] = sum / sums.weight;
  }
  const std::vector<double> whole_sums = whole_set_sums(task, agreement);
  if (!agreement.alone()) task.set_validation_rows(agreement.join_rows(task.validation_rows()));
  for (const auto& [name, value] : task.finish_validation(whole_sums)) result.metrics["val_" + name] = value;
  // Ranks decide by the same numbers, whatever the rounding of each.
  result.metrics = agreement.of_first(result.metrics);
  return result;
}

}  // namespace redline::train
