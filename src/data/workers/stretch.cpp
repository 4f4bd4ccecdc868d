#include "data/workers/stretch.h"

#include <mutex>

namespace redline::data {

namespace {

void add_micro(Stretch& stretch, int64_t step, size_t index, size_t count, uint32_t begin, uint32_t end) {
  Micro& micro = stretch.micros.emplace_back();
  micro.begin = begin, micro.end = end;
  micro.batch.epoch = stretch.plan->epoch, micro.batch.step = step;
  micro.batch.micro_batch = static_cast<int32_t>(index);
  micro.batch.num_micro_batches = static_cast<int32_t>(count);
}

}  // namespace

std::shared_ptr<const EpochPlan> StretchMaker::plan(int64_t epoch) {
  const std::lock_guard lock(plans_mutex_);
  for (const auto& kept : plans_) {
    if (kept != nullptr && kept->epoch == epoch) return kept;
  }
  plans_[1] = std::move(plans_[0]);
  plans_[0] = planner_->epoch(epoch);
  return plans_[0];
}

void StretchMaker::move_to(int64_t epoch, int64_t step) {
  epoch_ = epoch;
  step_ = step;
}

void StretchMaker::add_step(Stretch& stretch, int64_t step) const {
  const auto groups = stretch.plan->step(step);
  const SplitSettings& s = settings_.split;
  const uint32_t first_entry = static_cast<uint32_t>(stretch.entries.size()),
                 first_row = static_cast<uint32_t>(stretch.rows.size());
  if (groups.size() == 1 && s.world == 1 && !s.mixes_groups &&
      (s.micro_batch_size == 0 || groups[0].size <= static_cast<uint64_t>(s.micro_batch_size))) {
    // A step that is one micro-batch needs no split; with tiny samples the general way would cost as much as reading
    // them.
    const auto entries = stretch.plan->of(groups[0]);
    stretch.entries.insert(stretch.entries.end(), entries.begin(), entries.end());
    for (uint32_t row = 0; row < groups[0].size; ++row) stretch.rows.push_back(first_entry + row);
    add_micro(stretch, step, 0, 1, first_row, first_row + groups[0].size);
    return;
  }
  const StepSplit split = split_step(*stretch.plan, step, s, length_);
  stretch.entries.insert(stretch.entries.end(), split.entries.begin(), split.entries.end());
  for (uint32_t row : split.rows) stretch.rows.push_back(first_entry + row);
  for (const auto& group : split.groups) stretch.groups.push_back({first_entry + group.begin, group.size});
  const size_t count = split.num_micro_batches();
  for (size_t m = 0; m < count; ++m)
    add_micro(stretch, step, m, count, first_row + split.micro_begin[m], first_row + split.micro_begin[m + 1]);
}

// Sets up the counters once all steps are in.
void StretchMaker::finish(Stretch& stretch) const {
  for (Micro& micro : stretch.micros) {
    micro.waiting.store(static_cast<int32_t>(micro.end - micro.begin), std::memory_order_relaxed);
    if (micro.begin == micro.end && !stretch.whole_batches)  // nothing to wait for
      micro.done.store(true, std::memory_order_relaxed);
  }
  if (stretch.whole_batches) return;
  const size_t count = stretch.entries.size();
  stretch.samples.resize(count);
  stretch.bad.resize(count);
  stretch.errors.resize(count);
  stretch.micro_of.assign(count, UINT32_MAX);
  for (size_t m = 0; m < stretch.micros.size(); ++m) {
    for (uint32_t r = stretch.micros[m].begin; r < stretch.micros[m].end; ++r)
      stretch.micro_of[stretch.rows[r]] = static_cast<uint32_t>(m);
  }
  if (stretch.groups.empty()) return;
  stretch.group_of.resize(count);
  stretch.group_waiting = std::make_unique<std::atomic<int32_t>[]>(stretch.groups.size());
  for (size_t g = 0; g < stretch.groups.size(); ++g) {
    const EpochPlan::Group& group = stretch.groups[g];
    stretch.group_waiting[g].store(static_cast<int32_t>(group.size), std::memory_order_relaxed);
    for (uint32_t e = 0; e < group.size; ++e) stretch.group_of[group.begin + e] = static_cast<uint32_t>(g);
  }
}

std::unique_ptr<Stretch> StretchMaker::make_next() {
  std::shared_ptr<const EpochPlan> epoch_plan;
  while (true) {
    if (epoch_ > last_epoch_.load(std::memory_order_relaxed)) return nullptr;
    epoch_plan = plan(epoch_);
    if (step_ < epoch_plan->num_steps()) break;
    if (epoch_plan->num_steps() == 0) return nullptr;
    ++epoch_;
    step_ = 0;
  }
  auto stretch = std::make_unique<Stretch>();
  stretch->plan = epoch_plan;
  stretch->whole_batches = settings_.whole_batches;
  do {
    add_step(*stretch, step_++);
  } while (step_ < epoch_plan->num_steps() && static_cast<int64_t>(stretch->rows.size()) < settings_.stretch_rows);
  finish(*stretch);
  return stretch;
}

}  // namespace redline::data
