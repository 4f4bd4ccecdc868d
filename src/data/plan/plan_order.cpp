// Buckets shuffle for themselves (plan_groups.cpp: smaller, so faster), so their order is drawn only as far as windows
// need it. The order of an epoch: fully shuffled, shuffled within windows, static buckets one after another, or parts
// sampled by weight.
#include "data/plan/plan_order.h"

#include <cmath>
#include <numeric>

#include "core/error.h"
#include "data/plan/shuffle.h"

namespace redline::data {

// Repeats beyond what 32 bits hold wrap: such a sample draws the numbers of an earlier repeat again, nothing worse.
uint32_t Planner::entry(uint64_t repeat, uint32_t sample) const {
  const uint64_t size = static_cast<uint64_t>(source_.size);
  const uint64_t most = (uint64_t{1} << 32) / size;
  return static_cast<uint32_t>(repeat % most * size + sample);
}

void Planner::order_plain(int64_t epoch, int64_t replica, Order& order) const {
  const size_t begin = order.entries.size();
  if (replica == 0) {
    order.entries = kept_;
  } else {
    for (uint32_t sample : kept_) order.entries.push_back(entry(static_cast<uint64_t>(replica), sample));
  }
  if (settings_.shuffle && edges_.empty()) {
    shuffle(std::span(order.entries).subspan(begin),
            PlanStream(settings_.seed, epoch, static_cast<uint64_t>(replica), PlanDraw::Samples));
  }
  order.segments.push_back({begin, order.entries.size(), settings_.batch_size});
}

void Planner::order_windows(int64_t epoch, int64_t replica, Order& order) const {
  const uint64_t salt = static_cast<uint64_t>(replica);
  std::vector<uint32_t> groups(locality_begin_.size() - 1);
  std::iota(groups.begin(), groups.end(), 0u);
  shuffle(std::span(groups), PlanStream(settings_.seed, epoch, salt, PlanDraw::LocalityGroups));

  std::vector<size_t> ends;  // of windows, in entries
  for (size_t i = 0; i < groups.size(); ++i) {
    for (uint32_t m = locality_begin_[groups[i]]; m < locality_begin_[groups[i] + 1]; ++m) {
      order.entries.push_back(entry(salt, locality_members_[m]));
    }
    const size_t window = static_cast<size_t>(settings_.window_locality_groups);
    if (window > 0 && ((i + 1) % window == 0 || i + 1 == groups.size())) ends.push_back(order.entries.size());
  }
  size_t begin = order.segments.empty() ? 0 : order.segments.back().end;
  if (settings_.window_locality_groups == 0) {
    const size_t window = static_cast<size_t>(settings_.window_samples);
    for (size_t end = begin + window; end < order.entries.size(); end += window) ends.push_back(end);
    ends.push_back(order.entries.size());
  }
  for (size_t w = 0; w < ends.size(); ++w) {
    if (edges_.empty()) {
      shuffle(std::span(order.entries).subspan(begin, ends[w] - begin),
              PlanStream(settings_.seed, epoch, mix_key(salt, w), PlanDraw::Samples));
    }
    order.segments.push_back({begin, ends[w], settings_.batch_size});
    begin = ends[w];
  }
}

void Planner::order_parts(int64_t epoch, int64_t replica, Order& order) const {
  const uint64_t salt = static_cast<uint64_t>(replica);
  std::vector<size_t> sequence;
  for (size_t p = 0; p < settings_.part_sizes.size(); ++p) {
    const int64_t weight = settings_.part_weights.empty() ? 1 : settings_.part_weights[p];
    sequence.insert(sequence.end(), static_cast<size_t>(weight), p);
  }
  if (settings_.part_order == PartOrder::SyncedRandomized) {
    shuffle(std::span(sequence), PlanStream(settings_.seed, epoch, salt, PlanDraw::Parts));
  }
  std::vector<uint64_t> seen(settings_.part_sizes.size(), 0);
  order.apart = true;
  order.mix_groups = settings_.part_order == PartOrder::FullyRandomized;
  for (size_t p : sequence) {
    const uint64_t weight = settings_.part_weights.empty() ? 1 : static_cast<uint64_t>(settings_.part_weights[p]);
    const uint64_t repeat = salt * weight + seen[p]++;
    const size_t begin = order.entries.size();
    for (uint32_t sample : part(p)) order.entries.push_back(entry(repeat, sample));
    if (settings_.shuffle) {
      shuffle(std::span(order.entries).subspan(begin),
              PlanStream(settings_.seed, epoch, mix_key(p, repeat), PlanDraw::PartSamples));
    }
    const int64_t batch = settings_.part_batch_sizes.empty() ? settings_.batch_size : settings_.part_batch_sizes[p];
    order.segments.push_back({begin, order.entries.size(), batch});
  }
}

namespace {

// Running sum of the parts' chances; empty parts have none.
std::vector<double> part_chances(const PlanSettings& settings, const std::vector<size_t>& kept) {
  std::vector<double> sums;
  double total = 0.0;
  for (size_t p = 0; p < kept.size(); ++p) {
    double chance = 0.0;
    if (kept[p] > 0) {
      chance = settings.sampling == ConcatSampling::Temperature
                   ? std::pow(static_cast<double>(kept[p]), 1.0 / settings.temperature)
                   : settings.sampling_weights[p];
    }
    sums.push_back(total += chance);
  }
  if (!(total > 0.0))
    throw ConfigError("concat_sampling_probabilities give every non-empty data set the probability 0.");
  return sums;
}

}  // namespace

// As NeMo's ConcatDataset: `scale` x total draws; each draw picks a part, then that part's next sample; a part that
// ends starts again in a new order.
void Planner::order_sampled(int64_t epoch, Order& order) const {
  const size_t parts = settings_.part_sizes.size();
  struct Cursor {
    std::vector<uint32_t> samples;
    size_t next = 0;
    uint64_t repeat = 0;
  };
  std::vector<Cursor> cursors(parts);
  std::vector<size_t> kept(parts);
  const auto refill = [&](size_t p) {
    Cursor& cursor = cursors[p];
    if (settings_.shuffle) {
      shuffle(std::span(cursor.samples),
              PlanStream(settings_.seed, epoch, mix_key(p, cursor.repeat), PlanDraw::PartSamples));
    }
    cursor.next = 0;
  };
  for (size_t p = 0; p < parts; ++p) {
    cursors[p].samples.assign(part(p).begin(), part(p).end());
    kept[p] = cursors[p].samples.size();
    refill(p);
  }
  const bool round_robin = settings_.sampling == ConcatSampling::RoundRobin;
  const std::vector<double> sums = round_robin ? std::vector<double>{} : part_chances(settings_, kept);
  PlanStream stream(settings_.seed, epoch, 0, PlanDraw::ConcatPart);
  const double wanted =
      settings_.sampling_scale * static_cast<double>(kept_.size()) * static_cast<double>(settings_.replicas);
  const size_t draws = std::max<size_t>(1, static_cast<size_t>(wanted));
  order.entries.reserve(draws);
  for (size_t turn = 0; order.entries.size() < draws; ++turn) {
    size_t p = turn % parts;
    if (!round_robin) {
      const double at = stream.uniform() * sums.back();
      p = static_cast<size_t>(std::upper_bound(sums.begin(), sums.end(), at) - sums.begin());
      p = std::min(p, parts - 1);
    }
    Cursor& cursor = cursors[p];
    if (cursor.samples.empty()) continue;
    if (cursor.next == cursor.samples.size()) {
      ++cursor.repeat;
      refill(p);
    }
    order.entries.push_back(entry(cursor.repeat, cursor.samples[cursor.next++]));
  }
  order.segments.push_back({0, order.entries.size(), settings_.batch_size});
}

}  // namespace redline::data
