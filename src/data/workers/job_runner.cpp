#include "data/workers/job_runner.h"

#include <new>
#include <utility>

#include "core/check.h"
#include "core/error.h"
#include "data/collate.h"

namespace redline::data {

JobRunner::JobRunner(Parts parts) : parts_(std::move(parts)) {
  batch_plan_ = {parts_.collate, parts_.max_length, parts_.allocator.get()};
}

bool JobRunner::run(Job& job, uint32_t begin, uint32_t end, measure::StageClock::Slot& slot) {
  bool finished = false;
  if (job.whole_batches) {
    for (uint32_t m = begin; m < end; ++m) read_whole(job, job.micros[m], slot);
    return true;
  }
  for (uint32_t entry = begin; entry < end; ++entry) {
    make_row(job, entry, slot);
    finished |= row_ready(job, entry, slot);
  }
  return finished;
}

void JobRunner::make_row(Job& job, uint32_t entry, measure::StageClock::Slot& slot) {
  Row& row = job.made[entry];
  try {
    parts_.chain->make_row(*job.plan, job.entries[entry], row, slot);
    buffered_bytes_.fetch_add(row.num_bytes, std::memory_order_relaxed);
  } catch (...) {
    job.errors[entry] = std::current_exception();
  }
}

// The counters order memory: what a thread wrote before it counted down is seen by the one that brings the counter to
// zero.
bool JobRunner::row_ready(Job& job, uint32_t entry, measure::StageClock::Slot& slot) {
  if (job.groups.empty()) return count_down(job, entry, slot);
  const uint32_t group = job.group_of[entry];
  if (job.group_waiting[group].fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  return mix_group(job, group, slot);
}

bool JobRunner::mix_group(Job& job, uint32_t group, measure::StageClock::Slot& slot) {
  const uint32_t begin = job.groups[group].begin, end = begin + job.groups[group].size;
  std::exception_ptr error;
  for (uint32_t e = begin; e < end && error == nullptr; ++e) error = job.errors[e];
  if (error == nullptr) {
    try {
      const measure::StageScope scope(slot, measure::Stage::Transform);
      std::vector<Sample> samples;
      samples.reserve(end - begin);
      for (uint32_t e = begin; e < end; ++e) samples.push_back(std::move(job.made[e].sample));
      parts_.group_transform->apply(samples,
                                    draw_key(*job.plan, parts_.chain->planner().settings().seed, job.entries[begin]));
      for (uint32_t e = begin; e < end; ++e) job.made[e].sample = std::move(samples[e - begin]);
    } catch (...) {
      error = named_exception(parts_.chain->source(), job.plan->sample(job.entries[begin]), " and its group");
    }
  }
  int64_t change = 0;
  for (uint32_t e = begin; e < end; ++e) {
    Row& row = job.made[e];
    if (error != nullptr) job.errors[e] = error;
    if (error != nullptr || job.micro_of[e] == UINT32_MAX) row.sample = {};  // read only to be mixed
    const int64_t bytes = num_bytes(row.sample);
    change += bytes - row.num_bytes;
    row.num_bytes = bytes;
  }
  buffered_bytes_.fetch_add(change, std::memory_order_relaxed);
  bool finished = false;
  for (uint32_t e = begin; e < end; ++e) {
    if (job.micro_of[e] != UINT32_MAX) finished |= count_down(job, e, slot);
  }
  return finished;
}

bool JobRunner::count_down(Job& job, uint32_t entry, measure::StageClock::Slot& slot) {
  Micro& micro = job.micros[job.micro_of[entry]];
  if (micro.waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  collate_micro(job, micro, slot);
  return true;
}

// Whatever goes wrong here, memory included, is the micro-batch's error: the consumer waits for `done`.
void JobRunner::collate_micro(Job& job, Micro& micro, measure::StageClock::Slot& slot) {
  const measure::StageScope scope(slot, measure::Stage::Collate);
  const std::span<const uint32_t> rows(job.rows.data() + micro.begin, micro.end - micro.begin);
  try {
    std::vector<const Sample*> samples;
    samples.reserve(rows.size());
    micro.batch.sample_ids.reserve(rows.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      Row& row = job.made[rows[r]];
      samples.push_back(&row.sample);
      micro.batch.sample_ids.push_back(row.sample.id);
      if (micro.error == nullptr) micro.error = job.errors[rows[r]];
      if (row.bad.empty()) continue;
      micro.bad.resize(rows.size());
      micro.bad[r] = std::move(row.bad);
      ++micro.batch.num_bad;
    }
    if (micro.error == nullptr)
      collate(samples, parts_.collate, parts_.allocator != nullptr ? *parts_.allocator : heap_arrays(), micro.batch);
  } catch (const std::bad_alloc&) {
    micro.error = rows.empty() ? std::current_exception()
                               : named_exception(parts_.chain->source(), job.plan->sample(job.entries[rows.front()]),
                                                 " and its batch");
  } catch (...) {
    micro.error = std::current_exception();
  }
  int64_t row_bytes = 0;
  for (uint32_t entry : rows) {
    row_bytes += std::exchange(job.made[entry].num_bytes, 0);
    job.made[entry].sample = {};
  }
  buffered_bytes_.fetch_sub(row_bytes, std::memory_order_relaxed);
  finish_micro(job, micro);
}

void JobRunner::read_rows(const Job& job, Micro& micro, measure::StageClock::Slot& slot) {
  const EpochPlan& plan = *job.plan;
  const size_t count = micro.end - micro.begin;
  auto& ids = micro.batch.sample_ids;
  ids.resize(count);
  for (size_t r = 0; r < count; ++r) ids[r] = plan.sample(job.entries[job.rows[micro.begin + r]]);
  while (count > 0) {
    std::vector<BadRow> bad = parts_.batch_reader->read_batch(ids, batch_plan_, micro.batch, slot);
    if (bad.empty()) break;
    if (micro.bad.empty()) micro.bad.resize(count);
    for (BadRow& row : bad) {
      auto& events = micro.bad[row.position];
      events.push_back({ids[row.position], std::move(row.bad.name), std::move(row.bad.reason)});
      if (events.size() == kMaxSubstitutes) {
        throw DataError(std::to_string(kMaxSubstitutes) + " rows in a row could not be used, the last: " +
                        events.back().name + ": " + events.back().reason);
      }
      const int64_t planned = plan.sample(job.entries[job.rows[micro.begin + row.position]]);
      ids[row.position] = parts_.chain->planner().substitute(plan.epoch, planned, static_cast<int>(events.size()) - 1);
    }
  }
  for (const auto& events : micro.bad) micro.batch.num_bad += events.empty() ? 0 : 1;
  slot.samples.store(slot.samples.load(std::memory_order_relaxed) + static_cast<int64_t>(count),
                     std::memory_order_relaxed);
}

void JobRunner::read_whole(Job& job, Micro& micro, measure::StageClock::Slot& slot) {
  try {
    read_rows(job, micro, slot);
  } catch (...) {
    const auto& ids = micro.batch.sample_ids;
    micro.error =
        ids.empty() ? std::current_exception() : named_exception(parts_.chain->source(), ids.front(), " and its batch");
  }
  finish_micro(job, micro);
}

void JobRunner::finish_micro(const Job& job, Micro& micro) {
  Batch& batch = micro.batch;
  batch.epoch = job.plan->epoch;
  batch.step = micro.step;
  batch.micro_batch = micro.index;
  batch.num_micro_batches = micro.count;
  buffered_bytes_.fetch_add(num_bytes(batch), std::memory_order_relaxed);
  micro.done.store(true, std::memory_order_seq_cst);
}

void JobRunner::drop(Job& job) {
  int64_t bytes = 0;
  for (const Row& row : job.made) bytes += row.num_bytes;
  for (const Micro& micro : job.micros) {
    if (micro.done.load(std::memory_order_acquire)) bytes += num_bytes(micro.batch);
  }
  released(bytes);
}

}  // namespace redline::data
