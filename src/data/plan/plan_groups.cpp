// Cuts an epoch's order into groups: by count or by padded length, with or without length buckets.
//
// Buckets are filled within each segment (so that a shuffle window stays a window); what does not fill a group is
// carried on, and at the end leftovers of neighbouring buckets share groups, so that drop_last drops less than one
// group however many buckets there are.
#include <numeric>

#include "data/plan/plan_order.h"
#include "data/plan/shuffle.h"

namespace redline::data {

// Appends to plan.groups the groups of `run`, which must lie in plan.entries. The last, incomplete one is a group of
// its own, goes to `rest` when given, or is dropped.
void Planner::cut_run(std::span<const uint32_t> run, int64_t batch_size, EpochPlan& plan,
                      std::vector<uint32_t>* rest) const {
  const uint32_t first = static_cast<uint32_t>(run.data() - plan.entries.data());
  const size_t most = batch_size > 0 ? static_cast<size_t>(batch_size) : run.size();
  size_t begin = 0;
  if (settings_.group_length > 0.0) {
    float longest = 0.0f;
    for (size_t i = 0; i < run.size(); ++i) {
      const float length = std::max(longest, lengths_[static_cast<size_t>(plan.sample(run[i]))]);
      const bool full =
          i > begin && (static_cast<double>(length) * static_cast<double>(i - begin + 1) > settings_.group_length ||
                        i - begin == most);
      if (full) {
        plan.groups.push_back({first + static_cast<uint32_t>(begin), static_cast<uint32_t>(i - begin)});
        begin = i;
        longest = lengths_[static_cast<size_t>(plan.sample(run[i]))];
      } else {
        longest = length;
      }
    }
  } else {
    for (; begin + most <= run.size() && most > 0; begin += most) {
      plan.groups.push_back({first + static_cast<uint32_t>(begin), static_cast<uint32_t>(most)});
    }
  }
  if (begin == run.size()) return;
  if (rest != nullptr) {
    rest->insert(rest->end(), run.begin() + static_cast<std::ptrdiff_t>(begin), run.end());
  } else if (settings_.drop_last) {
    plan.num_dropped += static_cast<int64_t>(run.size() - begin);
  } else {
    plan.groups.push_back({first + static_cast<uint32_t>(begin), static_cast<uint32_t>(run.size() - begin)});
  }
}

void Planner::cut_groups(const Order& order, EpochPlan& plan) const {
  const std::span<const uint32_t> all(plan.entries);
  if (!order.apart) {
    if (settings_.group_length == 0.0) plan.groups.reserve(all.size() / static_cast<size_t>(settings_.batch_size) + 1);
    cut_run(all, settings_.batch_size, plan, nullptr);
    return;
  }
  for (const auto& segment : order.segments)
    cut_run(all.subspan(segment.begin, segment.end - segment.begin), segment.batch_size, plan, nullptr);
  if (order.mix_groups) shuffle(std::span(plan.groups), PlanStream(settings_.seed, plan.epoch, 0, PlanDraw::Groups));
}

// One segment's entries sorted by bucket (stable), leftovers of earlier segments first; begins[b] is where bucket b
// starts.
void Planner::sort_by_bucket(std::span<const uint32_t> segment, std::vector<std::vector<uint32_t>>& carried,
                             const EpochPlan& plan, std::vector<uint32_t>& sorted, std::vector<size_t>& begins) const {
  const size_t buckets = carried.size();
  std::vector<size_t> next(buckets, 0);
  for (uint32_t e : segment) ++next[bucket_of_[static_cast<size_t>(plan.sample(e))]];
  begins.assign(1, 0);
  for (size_t b = 0; b < buckets; ++b) {
    begins.push_back(begins[b] + next[b] + carried[b].size());
    next[b] = begins[b];
  }
  sorted.resize(begins.back());
  for (size_t b = 0; b < buckets; ++b) {
    for (uint32_t e : carried[b]) sorted[next[b]++] = e;
    carried[b].clear();
  }
  for (uint32_t e : segment) sorted[next[bucket_of_[static_cast<size_t>(plan.sample(e))]]++] = e;
}

void Planner::cut_bucketed(const Order& order, EpochPlan& plan) const {
  std::vector<std::vector<uint32_t>> carried(edges_.size() + 1);
  std::vector<size_t> begins;
  std::vector<uint32_t> sorted;
  plan.entries.reserve(order.entries.size());
  for (size_t s = 0; s < order.segments.size(); ++s) {
    const size_t begin = order.segments[s].begin, end = order.segments[s].end;
    sort_by_bucket(std::span(order.entries).subspan(begin, end - begin), carried, plan, sorted, begins);
    const size_t first_group = plan.groups.size();
    for (size_t b = 0; b < carried.size(); ++b) {
      const std::span<uint32_t> bucket = std::span(sorted).subspan(begins[b], begins[b + 1] - begins[b]);
      if (settings_.shuffle) shuffle(bucket, PlanStream(settings_.seed, plan.epoch, mix_key(s, b), PlanDraw::Samples));
      const size_t at = plan.entries.size();
      plan.entries.insert(plan.entries.end(), bucket.begin(), bucket.end());
      cut_run(std::span<const uint32_t>(plan.entries).subspan(at), settings_.batch_size, plan, &carried[b]);
      plan.entries.resize(plan.entries.size() - carried[b].size());
    }
    size_t last_full = plan.groups.size();
    if (s + 1 == order.segments.size()) {
      const size_t at = plan.entries.size();
      for (const auto& rest : carried) plan.entries.insert(plan.entries.end(), rest.begin(), rest.end());
      cut_run(std::span<const uint32_t>(plan.entries).subspan(at), settings_.batch_size, plan, nullptr);
      last_full = plan.groups.size();
      const bool by_count = settings_.group_length == 0.0;
      if (by_count && last_full > first_group && plan.groups.back().size < static_cast<uint32_t>(settings_.batch_size))
        --last_full;
    }
    if (settings_.shuffle) {  // an incomplete group stays last
      shuffle(std::span(plan.groups).subspan(first_group, last_full - first_group),
              PlanStream(settings_.seed, plan.epoch, s, PlanDraw::Groups));
    }
  }
}

}  // namespace redline::data
