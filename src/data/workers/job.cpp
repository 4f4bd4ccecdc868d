#include "data/workers/job.h"

#include <mutex>

namespace redline::data {

std::shared_ptr<const EpochPlan> JobMaker::plan(int64_t epoch) {
  const std::lock_guard lock(plans_mutex_);
  for (const auto& kept : plans_) {
    if (kept != nullptr && kept->epoch == epoch) return kept;
  }
  plans_[1] = std::move(plans_[0]);
  plans_[0] = planner_->epoch(epoch);
  return plans_[0];
}

void JobMaker::move_to(int64_t epoch, int64_t step) {
  epoch_ = epoch;
  step_ = step;
}

void JobMaker::add_step(Job& job, int64_t step) const {
  const auto groups = job.plan->step(step);
  const SplitSettings& s = settings_.split;
  if (groups.size() == 1 && s.world == 1 && !s.mixes_groups &&
      (s.micro_batch_size == 0 || groups[0].size <= static_cast<uint64_t>(s.micro_batch_size))) {
    // A step that is one micro-batch needs no split; with tiny samples the general way would cost as much as reading
    // them.
    const uint32_t first = static_cast<uint32_t>(job.entries.size());
    const auto entries = job.plan->of(groups[0]);
    job.entries.insert(job.entries.end(), entries.begin(), entries.end());
    for (uint32_t row = 0; row < groups[0].size; ++row) job.rows.push_back(static_cast<uint32_t>(job.rows.size()));
    job.pending.push_back({step, 0, 1, first, first + groups[0].size});
    return;
  }
  StepSplit split = split_step(*job.plan, step, settings_.split, length_);
  const uint32_t first_entry = static_cast<uint32_t>(job.entries.size()),
                 first_row = static_cast<uint32_t>(job.rows.size());
  job.entries.insert(job.entries.end(), split.entries.begin(), split.entries.end());
  for (uint32_t row : split.rows) job.rows.push_back(first_entry + row);
  for (const auto& group : split.groups) job.groups.push_back({first_entry + group.begin, group.size});
  const size_t count = split.num_micro_batches();
  for (size_t m = 0; m < count; ++m) {
    job.pending.push_back({step, static_cast<int32_t>(m), static_cast<int32_t>(count), first_row + split.micro_begin[m],
                           first_row + split.micro_begin[m + 1]});
  }
}

// Sets up the counters once all steps are in.
void JobMaker::finish(Job& job) const {
  job.micros = std::vector<Micro>(job.pending.size());
  for (size_t m = 0; m < job.pending.size(); ++m) {
    Micro& micro = job.micros[m];
    const auto& shape = job.pending[m];
    micro.step = shape.step, micro.index = shape.index, micro.count = shape.count;
    micro.begin = shape.begin, micro.end = shape.end;
    micro.waiting.store(static_cast<int32_t>(shape.end - shape.begin), std::memory_order_relaxed);
    if (shape.begin == shape.end && !job.whole_batches) {  // nothing to wait for
      micro.batch.epoch = job.plan->epoch, micro.batch.step = shape.step;
      micro.batch.micro_batch = shape.index, micro.batch.num_micro_batches = shape.count;
      micro.done.store(true, std::memory_order_relaxed);
    }
  }
  job.pending.clear();
  if (job.whole_batches) return;
  job.made.resize(job.entries.size());
  job.errors.resize(job.entries.size());
  job.micro_of.assign(job.entries.size(), UINT32_MAX);
  for (size_t m = 0; m < job.micros.size(); ++m) {
    for (uint32_t r = job.micros[m].begin; r < job.micros[m].end; ++r)
      job.micro_of[job.rows[r]] = static_cast<uint32_t>(m);
  }
  if (job.groups.empty()) return;
  job.group_of.resize(job.entries.size());
  job.group_waiting = std::make_unique<std::atomic<int32_t>[]>(job.groups.size());
  for (size_t g = 0; g < job.groups.size(); ++g) {
    job.group_waiting[g].store(static_cast<int32_t>(job.groups[g].size), std::memory_order_relaxed);
    for (uint32_t e = 0; e < job.groups[g].size; ++e) job.group_of[job.groups[g].begin + e] = static_cast<uint32_t>(g);
  }
}

std::unique_ptr<Job> JobMaker::make_next() {
  std::shared_ptr<const EpochPlan> epoch_plan;
  while (true) {
    if (epoch_ > last_epoch_.load(std::memory_order_relaxed)) return nullptr;
    epoch_plan = plan(epoch_);
    if (step_ < epoch_plan->num_steps()) break;
    if (epoch_plan->num_steps() == 0) return nullptr;
    ++epoch_;
    step_ = 0;
  }
  auto job = std::make_unique<Job>();
  job->plan = epoch_plan;
  job->whole_batches = settings_.whole_batches;
  do {
    add_step(*job, step_++);
  } while (step_ < epoch_plan->num_steps() && static_cast<int64_t>(job->rows.size()) < settings_.job_rows);
  finish(*job);
  return job;
}

}  // namespace redline::data
