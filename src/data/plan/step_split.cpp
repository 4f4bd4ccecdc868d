// Rows are sorted by length before they are cut into micro-batches: that cuts padding and, without batch statistics,
// changes nothing else. Ranks are dealt neighbours in that order, so that they wait little for each other.
#include "data/plan/step_split.h"

#include <numeric>

#include "core/check.h"

namespace redline::data {

namespace {

using Rows = std::vector<uint32_t>;  // positions in the step, over all ranks

size_t divide_up(size_t count, size_t by) { return (count + by - 1) / by; }

// Cuts `rows` into `chunks` nearly equal runs and appends this rank's share of each as one micro-batch. `spread` deals
// rows in turn (neighbours are alike); otherwise a rank takes consecutive ones (they belong together).
void deal(const Rows& rows, size_t chunks, size_t rank, size_t world, bool spread, std::vector<Rows>& micros) {
  for (size_t c = 0; c < chunks; ++c) {
    const size_t begin = rows.size() * c / chunks, end = rows.size() * (c + 1) / chunks;
    Rows& mine = micros.emplace_back();
    if (spread) {
      // The rank that gets one row more rotates from chunk to chunk.
      for (size_t i = begin + (rank + world - c % world) % world; i < end; i += world) mine.push_back(rows[i]);
    } else {
      const size_t count = end - begin;
      for (size_t i = begin + count * rank / world; i < begin + count * (rank + 1) / world; ++i)
        mine.push_back(rows[i]);
    }
  }
}

struct StepView {
  const EpochPlan& plan;
  std::vector<EpochPlan::Group> groups;  // of this rank, or all
  Rows group_begin;                      // positions where groups start, one more than groups
  std::vector<uint32_t> entries;

  void sort_by_length(Rows& rows, const std::function<double(int64_t)>& length) const {
    std::vector<double> lengths(entries.size());
    for (uint32_t row : rows) lengths[row] = length(plan.sample(entries[row]));
    std::stable_sort(rows.begin(), rows.end(), [&](uint32_t a, uint32_t b) { return lengths[a] < lengths[b]; });
  }
};

StepView view_step(const EpochPlan& plan, int64_t step, size_t rank, size_t world) {
  StepView view{plan, {}, {0}, {}};
  const auto groups = plan.step(step);
  for (size_t g = rank; g < groups.size(); g += world) {
    view.groups.push_back(groups[g]);
    const auto entries = plan.of(groups[g]);
    view.entries.insert(view.entries.end(), entries.begin(), entries.end());
    view.group_begin.push_back(static_cast<uint32_t>(view.entries.size()));
  }
  return view;
}

// Groups are dealt to ranks in turn: the size of the largest group of each turn. All ranks cut by it, so that all get
// the same number of micro-batches even when their groups differ in size.
std::vector<size_t> largest_shares(std::span<const EpochPlan::Group> groups, size_t world) {
  std::vector<size_t> most(divide_up(groups.size(), world), 0);
  for (size_t g = 0; g < groups.size(); ++g) most[g / world] = std::max<size_t>(most[g / world], groups[g].size);
  return most;
}

// Turns positions in the step into positions in what this rank reads.
StepSplit finish(const StepView& view, const std::vector<Rows>& micros, bool mixes_groups) {
  StepSplit split;
  split.micro_begin.push_back(0);
  std::vector<uint32_t> read_at(view.entries.size(), UINT32_MAX);
  if (mixes_groups) {
    std::vector<bool> wanted(view.entries.size(), false);
    for (const Rows& micro : micros) {
      for (uint32_t row : micro) wanted[row] = true;
    }
    for (size_t g = 0; g + 1 < view.group_begin.size(); ++g) {
      const uint32_t begin = view.group_begin[g], end = view.group_begin[g + 1];
      if (std::none_of(wanted.begin() + begin, wanted.begin() + end, [](bool is_wanted) { return is_wanted; }))
        continue;
      split.groups.push_back({static_cast<uint32_t>(split.entries.size()), end - begin});
      for (uint32_t row = begin; row < end; ++row) {
        read_at[row] = static_cast<uint32_t>(split.entries.size());
        split.entries.push_back(view.entries[row]);
      }
    }
  }
  for (const Rows& micro : micros) {
    for (uint32_t row : micro) {
      if (!mixes_groups) {
        read_at[row] = static_cast<uint32_t>(split.entries.size());
        split.entries.push_back(view.entries[row]);
      }
      split.rows.push_back(read_at[row]);
    }
    split.micro_begin.push_back(static_cast<uint32_t>(split.rows.size()));
  }
  return split;
}

}  // namespace

StepSplit split_step(const EpochPlan& plan, int64_t step, const SplitSettings& settings,
                     const std::function<double(int64_t)>& length) {
  REDLINE_CHECK(settings.rank >= 0 && settings.rank < settings.world, "a rank is below the world size");
  size_t rank = static_cast<size_t>(settings.rank), world = static_cast<size_t>(settings.world);
  const size_t num_groups = plan.step(step).size();
  const bool within_groups = settings.keep_groups || settings.bounded_groups;
  // Whole groups per rank where they divide evenly: nothing is read twice and a group stays one micro-batch.
  const bool deal_groups =
      (within_groups || settings.mixes_groups) && num_groups % world == 0 && !settings.across_ranks;
  const StepView view = deal_groups ? view_step(plan, step, rank, world) : view_step(plan, step, 0, 1);
  if (deal_groups) rank = 0, world = 1;

  const size_t micro_rows = static_cast<size_t>(settings.micro_batch_size) * world;
  const std::vector<size_t> most =
      largest_shares(plan.step(step), deal_groups ? static_cast<size_t>(settings.world) : 1);
  std::vector<Rows> micros;
  if (within_groups) {
    for (size_t g = 0; g + 1 < view.group_begin.size(); ++g) {
      Rows rows(view.group_begin[g + 1] - view.group_begin[g]);
      std::iota(rows.begin(), rows.end(), view.group_begin[g]);
      const size_t chunks = micro_rows == 0 ? 1 : std::max<size_t>(1, divide_up(most[g], micro_rows));
      if (!settings.keep_groups && (chunks > 1 || world > 1)) view.sort_by_length(rows, length);
      deal(rows, chunks, rank, world, !settings.keep_groups, micros);
    }
  } else {
    Rows rows(view.entries.size());
    std::iota(rows.begin(), rows.end(), 0u);
    const size_t share = std::accumulate(most.begin(), most.end(), size_t{0});
    const size_t chunks = micro_rows == 0 ? divide_up(view.groups.size(), world) : divide_up(share, micro_rows);
    if (chunks > 1 || world > 1) view.sort_by_length(rows, length);
    deal(rows, std::max<size_t>(1, chunks), rank, world, true, micros);
  }
  return finish(view, micros, settings.mixes_groups);
}

}  // namespace redline::data
