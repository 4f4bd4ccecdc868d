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

namespace {

constexpr size_t kTimeFields = kOwnParts.size() + 1;  // and the processor's

// Where a phase stands in kOwnParts; its size for what is waiting for others.
size_t part_of(measure::Phase phase) {
  using measure::Phase;
  switch (phase) {
    case Phase::Wait:
      return 0;
    case Phase::Copy:
      return 1;
    case Phase::Forward:
      return 2;
    case Phase::Backward:
      return 3;
    case Phase::Optimiser:
      return 4;
    case Phase::Log:
    case Phase::Monitor:
    case Phase::Validate:
    case Phase::Checkpoint:
      return 5;
    case Phase::Other:
      return 6;
    case Phase::Reduce:
      break;
  }
  return kOwnParts.size();
}

double power_of_two(double weight) {
  return weight > 0.0 && std::isfinite(weight) ? std::exp2(std::ceil(std::log2(weight))) : 1.0;
}

}  // namespace

RankAgreement::RankAgreement(RankGroup& group, RankWatch& watch, const RankAgreementSettings& settings)
    : group_(group), watch_(watch), settings_(settings), stragglers_(group.world()) {
  first_ns_ = static_cast<int64_t>(of_first(static_cast<double>(redline::now_ns())));
}

void RankAgreement::forget_loop() {
  watch_.follow(nullptr);
  clock_ = nullptr;
  buckets_ = nullptr;
}

// What it takes is waiting for others: the loop's Reduce phase, where there is a loop.
void RankAgreement::counted(const std::function<void()>& exchange) {
  const NoRefusals no_refusals;
  std::optional<measure::PhaseScope> scope;
  if (clock_ != nullptr) scope.emplace(*clock_, measure::Phase::Reduce);
  const int64_t begin = redline::now_ns();
  exchange();
  if (buckets_ != nullptr) buckets_->note_exchange(redline::now_ns() - begin);
}

std::vector<double> RankAgreement::gather(std::vector<double> mine) {
  std::vector<double> all;
  counted([&] { all = group_.gather(mine); });
  return all;
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
  used_reference_ = reference_;
  if (used_reference_ == 0.0 || settings_.narrow_range) {
    const std::vector<double> all = gather({weight * static_cast<double>(expected_pieces)});
    used_reference_ = power_of_two(*std::max_element(all.begin(), all.end()));
  }
  return used_reference_;
}

// Waits for the device: a number of the host is what ranks can agree on before backward begins.
torch::Tensor RankAgreement::reference_weight(const torch::Tensor& weight, int64_t expected_pieces) {
  return torch::full_like(weight, reference_weight(weight.item<double>(), expected_pieces));
}

std::unique_ptr<GradientSync> RankAgreement::sync_gradients(task::Task& task, const measure::StepClock& clock) {
  task_ = &task;
  // Without layers that span ranks nobody meets in them: no exchange, and no wait for what a short rank cannot know.
  settings_.sync_batchnorm = settings_.sync_batchnorm && task.batch_statistics();
  metrics_.clear();
  for (const task::MetricInfo& metric : task.metrics()) metrics_.push_back(metric.name);
  watch_.follow(&clock);
  clock_ = const_cast<measure::StepClock*>(&clock);
  reference_ = 0.0;
  BucketSettings buckets;
  buckets.bucket_bytes = static_cast<int64_t>(settings_.strategy.bucket_cap_mb * (1 << 20));
  buckets.gradient_as_bucket_view = settings_.strategy.gradient_as_bucket_view;
  buckets.find_unused = settings_.strategy.looks_for_unused();
  buckets.compression = settings_.strategy.compression;
  buckets.sync_batchnorm = settings_.sync_batchnorm;
  auto sync = std::make_unique<GradientBuckets>(group_, task.module(), buckets, *clock_);
  buckets_ = sync.get();
  return sync;
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
                           static_cast<double>(verdict.padded_items),
                           std::exchange(damaged_, false) ? 1.0 : 0.0,
                           buckets_ != nullptr ? buckets_->own_squared().value_or(-1.0) : -1.0};
  const std::vector<double> times = own_times();
  mine.insert(mine.end(), times.begin(), times.end());
  constexpr size_t kSum = 6, kDamaged = 11, kTimes = 13, kMetrics = kTimes + kTimeFields;
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
  find_straggler(all, width, kTimes);
  verdict.damaged_before = total(kDamaged) > 0.0;
  if (verdict.damaged_before) return;
  verdict.out_of_memory = total(2) > 0.0;
  cuts_ = cuts_ || verdict.out_of_memory;
  if (verdict.out_of_memory) return;  // nothing was computed
  if (buckets_ != nullptr) buckets_->note_samples(verdict.samples);
  note_noise(verdict, all, width);
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
  if (verdict.weight > 0.0 && std::isfinite(verdict.weight))
    reference_ = power_of_two(verdict.weight / static_cast<double>(world));
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

// The step that ended last, by phase; a first field below zero: it was not divided.
std::vector<double> RankAgreement::own_times() {
  std::vector<double> fields(kTimeFields, 0.0);
  const int64_t cpu_ns = process_cpu_ns();
  const double cpu = 1e-9 * static_cast<double>(cpu_ns - std::exchange(cpu_ns_, cpu_ns));
  const measure::PhaseTimes* phases = clock_ != nullptr ? clock_->finished() : nullptr;
  if (phases == nullptr) {
    fields[0] = -1.0;
    return fields;
  }
  for (size_t p = 0; p < phases->size(); ++p)
    if (const size_t part = part_of(static_cast<measure::Phase>(p)); part < kOwnParts.size())
      fields[part] += 1e-9 * static_cast<double>((*phases)[p]);
  fields.back() = cpu;
  return fields;
}

void RankAgreement::find_straggler(const std::vector<double>& all, size_t width, size_t field) {
  for (size_t r = 0; r * width < all.size(); ++r) {
    const double* fields = all.data() + r * width + field;
    if (fields[0] < 0.0) continue;
    OwnTime own;
    std::copy_n(fields, own.parts.size(), own.parts.begin());
    own.cpu = fields[own.parts.size()];
    stragglers_.add(static_cast<int>(r), own);
  }
  const std::optional<Straggler> found = stragglers_.judge();
  if (found && told_) told_(*found, steps_);
}

// Each rank's gradient is one over its own samples, their sum one over all: two sizes of batch in one step.
void RankAgreement::note_noise(const StepVerdict& mine, const std::vector<double>& all, size_t width) {
  constexpr size_t kNorm = 4, kWeight = 7, kSamples = 8, kOwnSquared = 12;
  double small = 0.0, inverse = 0.0, weight = 0.0, samples = 0.0, ranks = 0.0;
  for (size_t r = 0; r * width < all.size(); ++r) {
    const double* fields = all.data() + r * width;
    if (fields[kOwnSquared] < 0.0) return;
    weight += fields[kWeight];
    samples += fields[kSamples];
    if (fields[kWeight] <= 0.0 || fields[kSamples] <= 0.0) continue;
    const double scale = used_reference_ / fields[kWeight];
    small += fields[kOwnSquared] * scale * scale;
    inverse += 1.0 / fields[kSamples];
    ranks += 1.0;
  }
  if (ranks < 2.0 || !mine.finite || buckets_ == nullptr) return;
  const double norm = all[kNorm] * used_reference_ / weight, gap = inverse / ranks - 1.0 / samples;
  const double variance = (small / ranks - norm * norm) / gap;
  if (std::isfinite(variance)) buckets_->note_noise(norm * norm - variance / samples, variance);
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
  counted([&] { group_.add_in_place(flat); });
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

// Counts, columns and types of all ranks first: one that saw nothing knows none of them.
std::vector<torch::Tensor> RankAgreement::join_rows(const std::vector<torch::Tensor>& mine) {
  const std::vector<double> counts = gather({static_cast<double>(mine.size())});
  const auto tensors = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  std::vector<torch::Tensor> joined;
  for (size_t i = 0; i < tensors; ++i) {
    const bool has = i < mine.size() && mine[i].size(0) > 0;
    const torch::Tensor own = has ? mine[i].detach().to(torch::kCPU).contiguous() : torch::Tensor();
    const std::vector<double> shapes = gather({has ? static_cast<double>(own.size(0)) : 0.0,
                                               has && own.dim() > 1 ? static_cast<double>(own.size(1)) : 0.0,
                                               has ? static_cast<double>(own.scalar_type()) : -1.0});
    joined.push_back(group_.join(own, shapes));
  }
  return joined;
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
