#include "train/ranks/rank_agreement.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "core/check.h"
#include "core/time.h"
#include "train/ranks/gradient_buckets.h"
#include "train/signals.h"
#include "train/step/no_refusals.h"

namespace redline::train {

RankAgreement::RankAgreement(RankGroup& group, RankWatch& watch, const RankAgreementSettings& settings)
    : group_(group), watch_(watch), settings_(settings) {
  first_ns_ = static_cast<int64_t>(of_first(static_cast<double>(redline::now_ns())));
}

std::vector<double> RankAgreement::gather(std::vector<double> mine) {
  const NoRefusals no_refusals;
  return group_.gather(mine);
}

// A signal on one rank is a signal on all.
void RankAgreement::take_stop(const std::vector<double>& signals) {
  for (const double signal : signals) {
    if (signal == 0.0 || stop_signal_ != 0) continue;
    stop_signal_ = static_cast<int>(signal);
    if (!StopFlag::requested()) StopFlag::request(stop_signal_);
  }
}

double RankAgreement::reference_weight(double weight, int64_t expected_pieces) {
  const std::vector<double> all = gather({weight * static_cast<double>(expected_pieces)});
  const double most = *std::max_element(all.begin(), all.end());
  return most > 0.0 && std::isfinite(most) ? std::exp2(std::ceil(std::log2(most))) : 1.0;
}

// Waits for the device: a number of the host is what ranks can agree on before backward begins.
torch::Tensor RankAgreement::reference_weight(const torch::Tensor& weight, int64_t expected_pieces) {
  return torch::full_like(weight, reference_weight(weight.item<double>(), expected_pieces));
}

std::unique_ptr<GradientSync> RankAgreement::sync_gradients(task::Task& task, const measure::StepClock& clock) {
  task_ = &task;
  metrics_.clear();
  for (const task::MetricInfo& metric : task.metrics()) metrics_.push_back(metric.name);
  watch_.follow(&clock);
  BucketSettings buckets;
  buckets.bucket_bytes = static_cast<int64_t>(settings_.strategy.bucket_cap_mb * (1 << 20));
  buckets.gradient_as_bucket_view = settings_.strategy.gradient_as_bucket_view;
  buckets.find_unused = settings_.strategy.looks_for_unused();
  buckets.compression = settings_.strategy.compression;
  buckets.sync_batchnorm = settings_.sync_batchnorm;
  return std::make_unique<GradientBuckets>(group_, task.module(), buckets, const_cast<measure::StepClock&>(clock));
}

int64_t RankAgreement::pieces(int64_t mine, bool limited) {
  cuts_ = cuts_ || limited;
  if (!settings_.sync_batchnorm || !cuts_) return mine;
  const std::vector<double> all = gather({static_cast<double>(mine)});
  return static_cast<int64_t>(*std::max_element(all.begin(), all.end()));
}

void RankAgreement::same_shape(task::Batch& batch) {
  if (!settings_.sync_batchnorm) return;
  const task::BatchSchema schema = task_->schema();
  std::vector<double> sizes;
  for (const task::TensorSpec& spec : schema.tensors)
    for (size_t dim = 0; dim < spec.shape.size(); ++dim)
      if (spec.shape[dim] == -1)
        sizes.push_back(batch.has(spec.name) ? static_cast<double>(batch.at(spec.name).size(static_cast<int64_t>(dim)))
                                             : 0.0);
  if (sizes.empty()) return;
  const NoRefusals no_refusals;
  const std::vector<double> all = gather(sizes);
  for (size_t i = 0; i < all.size(); ++i) sizes[i % sizes.size()] = std::max(sizes[i % sizes.size()], all[i]);
  size_t next = 0;
  for (const task::TensorSpec& spec : schema.tensors) {
    std::vector<int64_t> missing(2 * spec.shape.size(), 0);  // last dimension first, before and after
    for (size_t dim = 0; dim < spec.shape.size(); ++dim)
      if (spec.shape[dim] == -1) {
        const auto want = static_cast<int64_t>(sizes[next++]);
        if (batch.has(spec.name))
          missing[2 * (spec.shape.size() - 1 - dim) + 1] = want - batch.at(spec.name).size(static_cast<int64_t>(dim));
      }
    if (std::all_of(missing.begin(), missing.end(), [](int64_t rows) { return rows == 0; })) continue;
    batch.tensors[spec.name] = torch::constant_pad_nd(batch.at(spec.name), missing, pad_value(spec.name));
  }
}

double RankAgreement::pad_value(const std::string& name) const {
  for (const data::CollateField& field : task_->collate().fields)
    if (field.name == name) return field.pad_value;
  return 0.0;
}

void RankAgreement::agree(StepVerdict& verdict) {
  const std::vector<double> sums = task_->step_sums();
  std::vector<double> mine{static_cast<double>(StopFlag::signal()),
                           static_cast<double>(redline::now_ns()),
                           verdict.out_of_memory ? 1.0 : 0.0,
                           verdict.finite ? 0.0 : 1.0,
                           verdict.grad_norm,
                           static_cast<double>(verdict.pieces),
                           verdict.value_sum,
                           verdict.weight,
                           static_cast<double>(verdict.samples),
                           static_cast<double>(verdict.items),
                           static_cast<double>(verdict.padded_items)};
  constexpr size_t kSum = 6, kMetrics = 11;
  for (const std::string& name : metrics_) {
    const auto found = verdict.metric_sums.find(name);
    mine.push_back(found != verdict.metric_sums.end() ? 1.0 : 0.0);
    mine.push_back(found != verdict.metric_sums.end() ? found->second : 0.0);
  }
  mine.insert(mine.end(), sums.begin(), sums.end());
  const std::vector<double> all = gather(mine);

  const size_t width = mine.size(), world = all.size() / width;
  const auto of = [&](size_t rank, size_t field) { return all[rank * width + field]; };
  const auto total = [&](size_t field) {
    double value = 0.0;
    for (size_t r = 0; r < world; ++r) value += of(r, field);
    return value;
  };
  std::vector<double> signals;
  for (size_t r = 0; r < world; ++r) signals.push_back(of(r, 0));
  take_stop(signals);
  first_ns_ = static_cast<int64_t>(of(0, 1));
  verdict.out_of_memory = total(2) > 0.0;
  cuts_ = cuts_ || verdict.out_of_memory;
  if (verdict.out_of_memory) return;  // nothing was computed
  const double own_samples = static_cast<double>(verdict.samples);
  if (verdict.finite)
    for (size_t r = 0; r < world; ++r)
      if (of(r, 3) > 0.0) verdict.problem = fmt::format("a tensor on rank {}", r);
  verdict.finite = total(3) == 0.0;
  verdict.grad_norm = of(0, 4);  // equal on all but for faults of a machine
  verdict.pieces = 0;
  for (size_t r = 0; r < world; ++r) verdict.pieces = std::max(verdict.pieces, static_cast<int64_t>(of(r, 5)));
  verdict.value_sum = total(kSum);
  verdict.weight = total(kSum + 1);
  verdict.samples = static_cast<int64_t>(total(kSum + 2));
  verdict.items = static_cast<int64_t>(total(kSum + 3));
  verdict.padded_items = static_cast<int64_t>(total(kSum + 4));
  for (size_t i = 0; i < metrics_.size(); ++i)
    if (total(kMetrics + 2 * i) > 0.0) verdict.metric_sums[metrics_[i]] = total(kMetrics + 2 * i + 1);
  if (!sums.empty()) {
    std::vector<double> added;
    for (size_t i = 0; i < sums.size(); ++i) added.push_back(total(kMetrics + 2 * metrics_.size() + i));
    task_->set_step_sums(added);
  }
  if (!settings_.sync_batchnorm && verdict.finite && verdict.samples > 0) merge_statistics(verdict, own_samples);
  watch_.at_step(++steps_);
}

// BatchNorm layers that each rank has of its own: running statistics become the mean over ranks of what each would have
// made of them, weighted by samples, so that buffers stay equal on all ranks.
void RankAgreement::merge_statistics(StepVerdict& verdict, double samples) {
  const torch::NoGradGuard no_grad;
  const NoRefusals no_refusals;
  std::vector<task::BatchNormUpdate> merged;
  for (const task::BatchNormUpdate& update : verdict.batch_norm) {
    const auto known = std::find_if(merged.begin(), merged.end(), [&](const task::BatchNormUpdate& m) {
      return m.running_mean.is_same(update.running_mean);
    });
    const bool first = known == merged.end();
    task::BatchNormUpdate& one = first ? merged.emplace_back(update) : *known;
    if (first) {
      one.batch_mean = update.running_mean.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true);
      one.batch_var_unbiased = update.running_var.to(torch::kFloat64, /*non_blocking=*/false, /*copy=*/true);
    }
    if (update.num_batches_tracked.defined()) one.num_batches_tracked = update.num_batches_tracked;
    one.momentum = 1.0;
    one.batch_mean.lerp_(update.batch_mean.to(torch::kFloat64), update.momentum);
    one.batch_var_unbiased.lerp_(update.batch_var_unbiased.to(torch::kFloat64), update.momentum);
  }
  if (merged.empty()) return;
  std::vector<torch::Tensor> parts;
  for (const task::BatchNormUpdate& one : merged) {
    parts.push_back(one.batch_mean.to(torch::kCPU) * samples);
    parts.push_back(one.batch_var_unbiased.to(torch::kCPU) * samples);
  }
  torch::Tensor flat = torch::cat(parts);
  group_.add_in_place(flat);
  flat.div_(static_cast<double>(verdict.samples));
  int64_t at = 0;
  for (task::BatchNormUpdate& one : merged)
    for (torch::Tensor* tensor : {&one.batch_mean, &one.batch_var_unbiased}) {
      *tensor = flat.narrow(0, at, tensor->numel()).to(tensor->device());
      at += tensor->numel();
    }
  verdict.batch_norm = std::move(merged);
}

bool RankAgreement::any(bool mine) {
  const std::vector<double> all = gather({mine ? 1.0 : 0.0});
  return std::any_of(all.begin(), all.end(), [](double value) { return value != 0.0; });
}

std::vector<double> RankAgreement::sum(const std::vector<double>& mine) {
  const std::vector<double> heads = gather({static_cast<double>(mine.size()), static_cast<double>(StopFlag::signal())});
  size_t most = 0;
  std::vector<double> signals;
  for (size_t r = 0; 2 * r < heads.size(); ++r) {
    most = std::max(most, static_cast<size_t>(heads[2 * r]));
    signals.push_back(heads[2 * r + 1]);
  }
  take_stop(signals);
  std::vector<double> padded = mine;  // a rank that saw nothing may have nothing to add
  padded.resize(most, 0.0);
  const std::vector<double> all = gather(padded);
  std::vector<double> result(most, 0.0);
  for (size_t i = 0; i < all.size(); ++i) result[i % most] += all[i];
  return result;
}

double RankAgreement::of_first(double mine) { return gather({mine})[0]; }

std::map<std::string, double> RankAgreement::of_first(const std::map<std::string, double>& mine) {
  std::string text;
  for (const auto& [name, value] : mine) text += fmt::format("{}\t{:a}\n", name, value);
  text = group_.follow(text);
  std::map<std::string, double> result;
  for (size_t begin = 0; begin < text.size();) {
    const size_t tab = text.find('\t', begin), end = text.find('\n', begin);
    REDLINE_CHECK(tab < end && end != std::string::npos, "rank 0 sends lines of a name and a number");
    result[text.substr(begin, tab - begin)] = std::strtod(text.substr(tab + 1, end - tab - 1).c_str(), nullptr);
    begin = end + 1;
  }
  return result;
}

}  // namespace redline::train
