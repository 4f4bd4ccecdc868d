#include "data/workers/stretch_runner.h"

#include <new>

#include "core/check.h"
#include "core/error.h"
#include "data/workers/collate.h"

namespace redline::data {

StretchRunner::StretchRunner(Parts parts) : parts_(std::move(parts)) {
  batch_plan_ = {parts_.collate, parts_.max_length, parts_.allocator.get()};
}

bool StretchRunner::run(Stretch& stretch, uint32_t begin, uint32_t end, measure::StageClock::Slot& slot) {
  bool finished = false;
  if (stretch.whole_batches) {
    for (uint32_t m = begin; m < end; ++m) read_whole(stretch, stretch.micros[m], slot);
    return true;
  }
  for (uint32_t entry = begin; entry < end; ++entry) {
    make_sample(stretch, entry, slot);
    finished |= sample_ready(stretch, entry, slot);
  }
  return finished;
}

void StretchRunner::make_sample(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot) {
  Sample& sample = stretch.samples[entry];
  try {
    parts_.chain->make_sample(*stretch.plan, stretch.entries[entry], sample, stretch.bad[entry], slot);
    buffered_bytes_.fetch_add(num_bytes(sample), std::memory_order_relaxed);
  } catch (...) {
    stretch.errors[entry] = std::current_exception();
    sample = {};
  }
}

// The counters order memory: what a thread wrote before it counted down is seen by the one that brings the counter to
// zero.
bool StretchRunner::sample_ready(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot) {
  if (stretch.groups.empty()) return count_down(stretch, entry, slot);
  const uint32_t group = stretch.group_of[entry];
  if (stretch.group_waiting[group].fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  return mix_group(stretch, group, slot);
}

bool StretchRunner::mix_group(Stretch& stretch, uint32_t group, measure::StageClock::Slot& slot) {
  const uint32_t begin = stretch.groups[group].begin, end = begin + stretch.groups[group].size;
  std::exception_ptr error;
  int64_t change = 0;
  for (uint32_t e = begin; e < end; ++e) {
    if (error == nullptr) error = stretch.errors[e];
    change -= num_bytes(stretch.samples[e]);
  }
  if (error == nullptr) {
    try {
      const measure::StageScope scope(slot, measure::Stage::Transform);
      parts_.group_transform->apply(
          std::span(stretch.samples).subspan(begin, end - begin),
          draw_key(*stretch.plan, parts_.chain->planner().settings().seed, stretch.entries[begin]));
    } catch (...) {
      error = named_exception(parts_.chain->source(), stretch.plan->sample(stretch.entries[begin]), " and its group");
    }
  }
  for (uint32_t e = begin; e < end; ++e) {
    Sample& sample = stretch.samples[e];
    if (error != nullptr) stretch.errors[e] = error;
    if (error != nullptr || stretch.micro_of[e] == UINT32_MAX) sample = {};  // read only to be mixed
    change += num_bytes(sample);
  }
  buffered_bytes_.fetch_add(change, std::memory_order_relaxed);
  bool finished = false;
  for (uint32_t e = begin; e < end; ++e) {
    if (stretch.micro_of[e] != UINT32_MAX) finished |= count_down(stretch, e, slot);
  }
  return finished;
}

bool StretchRunner::count_down(Stretch& stretch, uint32_t entry, measure::StageClock::Slot& slot) {
  Micro& micro = stretch.micros[stretch.micro_of[entry]];
  if (micro.waiting.fetch_sub(1, std::memory_order_acq_rel) != 1) return false;
  collate_micro(stretch, micro, slot);
  return true;
}

// Whatever goes wrong here, memory included, is the micro-batch's error: the consumer waits for `done`.
void StretchRunner::collate_micro(Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot) {
  const measure::StageScope scope(slot, measure::Stage::Collate);
  const std::span<const uint32_t> rows(stretch.rows.data() + micro.begin, micro.end - micro.begin);
  try {
    std::vector<const Sample*> samples;
    samples.reserve(rows.size());
    micro.batch.sample_ids.reserve(rows.size());
    for (size_t r = 0; r < rows.size(); ++r) {
      samples.push_back(&stretch.samples[rows[r]]);
      micro.batch.sample_ids.push_back(samples.back()->id);
      if (micro.error == nullptr) micro.error = stretch.errors[rows[r]];
      if (stretch.bad[rows[r]].empty()) continue;
      micro.bad.resize(rows.size());
      micro.bad[r] = std::move(stretch.bad[rows[r]]);
      ++micro.batch.num_bad;
    }
    if (micro.error == nullptr)
      collate(samples, parts_.collate, parts_.allocator != nullptr ? *parts_.allocator : heap_arrays(), micro.batch);
  } catch (const std::bad_alloc&) {
    micro.error = rows.empty() ? std::current_exception()
                               : named_exception(parts_.chain->source(),
                                                 stretch.plan->sample(stretch.entries[rows.front()]), " and its batch");
  } catch (...) {
    micro.error = std::current_exception();
  }
  int64_t row_bytes = 0;
  for (uint32_t entry : rows) {
    row_bytes += num_bytes(stretch.samples[entry]);
    stretch.samples[entry] = {};
  }
  buffered_bytes_.fetch_sub(row_bytes, std::memory_order_relaxed);
  finish_micro(micro);
}

void StretchRunner::read_rows(const Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot) {
  const EpochPlan& plan = *stretch.plan;
  const size_t count = micro.end - micro.begin;
  auto& ids = micro.batch.sample_ids;
  ids.resize(count);
  for (size_t r = 0; r < count; ++r) ids[r] = plan.sample(stretch.entries[stretch.rows[micro.begin + r]]);
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
      const int64_t planned = plan.sample(stretch.entries[stretch.rows[micro.begin + row.position]]);
      ids[row.position] = parts_.chain->planner().substitute(plan.epoch, planned, static_cast<int>(events.size()) - 1);
    }
  }
  for (const auto& events : micro.bad) micro.batch.num_bad += events.empty() ? 0 : 1;
  slot.samples.store(slot.samples.load(std::memory_order_relaxed) + static_cast<int64_t>(count),
                     std::memory_order_relaxed);
}

void StretchRunner::read_whole(Stretch& stretch, Micro& micro, measure::StageClock::Slot& slot) {
  try {
    read_rows(stretch, micro, slot);
  } catch (...) {
    const auto& ids = micro.batch.sample_ids;
    micro.error =
        ids.empty() ? std::current_exception() : named_exception(parts_.chain->source(), ids.front(), " and its batch");
  }
  finish_micro(micro);
}

void StretchRunner::finish_micro(Micro& micro) {
  buffered_bytes_.fetch_add(num_bytes(micro.batch), std::memory_order_relaxed);
  micro.done.store(true, std::memory_order_seq_cst);
}

void StretchRunner::drop(Stretch& stretch) {
  int64_t bytes = 0;
  for (const Sample& sample : stretch.samples) bytes += num_bytes(sample);
  for (const Micro& micro : stretch.micros) {
    if (micro.done.load(std::memory_order_acquire)) bytes += num_bytes(micro.batch);
  }
  released(bytes);
}

}  // namespace redline::data
