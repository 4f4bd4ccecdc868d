#include "tune/larger_pieces.h"

#include <algorithm>

#include "train/run/training_run.h"

namespace redline::tune {

namespace {

constexpr int64_t kRowsFactor = 4, kPieceWarmSteps = 1, kPieceLeastSteps = 3, kPieceMostSteps = 20;

Setting in_pieces_of(const train::Job& job, int64_t rows) {
  const int64_t batch = job.train_ds().batch_size.value(), effective = batch * job.trainer().accumulate_grad_batches;
  const int64_t larger = std::max(batch, rows);
  return {{"model.train_ds.batch_size", std::to_string(larger)},
          {"model.train_ds.micro_batch_size", std::to_string(rows)},
          {"trainer.accumulate_grad_batches", std::to_string(std::max<int64_t>(1, effective / larger))}};
}

}  // namespace

std::vector<measure::StepRow> run_larger_pieces(const JobSource& jobs, const train::Job& job, double seconds,
                                                double step_seconds) {
  if (job.train_ds().batch_duration || job.train_ds().batch_tokens) return {};  // there are no rows to count
  const int64_t rows = kRowsFactor * train::rows_at_once(job);
  const int64_t effective = job.train_ds().batch_size.value() * job.trainer().accumulate_grad_batches;
  const double one_step = step_seconds * std::max(1.0, static_cast<double>(rows) / static_cast<double>(effective));
  const auto steps =
      std::min(kPieceMostSteps, static_cast<int64_t>(seconds / std::max(1e-6, one_step)) - kPieceWarmSteps);
  if (steps < kPieceLeastSteps) return {};
  train::TrialOptions options;
  options.log = options.validate = options.monitor = false;
  try {
    train::Trial trial(jobs.registry, jobs.with(in_pieces_of(job, rows)), jobs.machine, options);
    trial.run(kPieceWarmSteps);
    return trial.run(steps).rows;
  } catch (const std::exception&) {  // whether such a size is any good is for a trial to say
    return {};
  }
}

}  // namespace redline::tune
