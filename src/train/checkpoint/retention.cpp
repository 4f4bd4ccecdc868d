// See retention.h.
#include "train/checkpoint/retention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace redline::train {
namespace {

// Indices of the k best by metric; items without one (or with NaN) never count as best.
std::vector<size_t> best_generations(std::span<const RetainedItem> items, const RetentionPolicy& policy) {
  std::vector<size_t> ranked;
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].metric && !std::isnan(*items[i].metric)) ranked.push_back(i);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](size_t a, size_t b) {
    return policy.lower_is_better ? *items[a].metric < *items[b].metric : *items[a].metric > *items[b].metric;
  });
  if (policy.save_top_k >= 0) ranked.resize(std::min(ranked.size(), static_cast<size_t>(policy.save_top_k)));
  return ranked;
}

}  // namespace

std::vector<size_t> generations_to_remove(std::span<const RetainedItem> items, const RetentionPolicy& policy) {
  const size_t newest = static_cast<size_t>(std::max<int64_t>(2, policy.keep_last));
  // In the order in which we would miss them: the newest two, the best, the other newest, the rest from new to old.
  std::vector<size_t> wanted;
  auto want = [&](size_t i) {
    if (std::find(wanted.begin(), wanted.end(), i) == wanted.end()) wanted.push_back(i);
  };
  for (size_t back = 1; back <= std::min<size_t>(2, items.size()); ++back) want(items.size() - back);
  for (size_t i : best_generations(items, policy)) want(i);
  for (size_t back = 1; back <= std::min(newest, items.size()); ++back) want(items.size() - back);
  if (policy.save_top_k < 0) {
    for (size_t i = items.size(); i-- > 0;) want(i);
  }
  if (policy.max_keep_ckpts >= 0) {
    wanted.resize(std::min(wanted.size(), static_cast<size_t>(std::max<int64_t>(2, policy.max_keep_ckpts))));
  }
  std::sort(wanted.begin(), wanted.end());
  std::vector<size_t> all(items.size()), remove;
  std::iota(all.begin(), all.end(), size_t{0});
  std::set_difference(all.begin(), all.end(), wanted.begin(), wanted.end(), std::back_inserter(remove));
  return remove;
}

}  // namespace redline::train
