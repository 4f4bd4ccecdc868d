#include "models/convnext/embedding/neighbours.h"

#include <algorithm>

namespace redline::models::embedding {

// The others that may stand before an item of the class within the ranks that count.
void NeighbourRanks::collect_others(std::span<const double> distances, std::span<const int64_t> rows, int64_t begin,
                                    int64_t end) {
  const auto n = static_cast<int64_t>(distances.size());
  const double bound = own_.back().distance;
  others_.resize(static_cast<size_t>(n - (end - begin)) + 1);
  Item* to = others_.data();
  const auto take = [&](int64_t from, int64_t until) {
    for (int64_t j = from; j < until; ++j) {  // written always, kept when near enough: no branch to guess
      *to = {distances[static_cast<size_t>(j)], rows[static_cast<size_t>(j)]};
      to += distances[static_cast<size_t>(j)] <= bound ? 1 : 0;
    }
  };
  take(0, begin);
  take(end, n);
  others_.resize(static_cast<size_t>(to - others_.data()));
  const size_t needed = std::max(own_.size(), static_cast<size_t>(deepest_));
  if (others_.size() > needed) {
    std::nth_element(others_.begin(), others_.begin() + static_cast<std::ptrdiff_t>(needed), others_.end());
    others_.resize(needed);
  }
  std::sort(others_.begin(), others_.end());
}

Neighbours NeighbourRanks::of(std::span<const double> distances, std::span<const int64_t> rows, int64_t query,
                              int64_t begin, int64_t end) {
  own_.clear();
  for (int64_t j = begin; j < end; ++j)
    if (j != query) own_.push_back({distances[static_cast<size_t>(j)], rows[static_cast<size_t>(j)]});
  Neighbours result;
  if (own_.empty()) return result;
  std::sort(own_.begin(), own_.end());
  collect_others(distances, rows, begin, end);
  size_t before = 0;  // others that stand before the item
  for (size_t i = 0; i < own_.size(); ++i) {
    while (before < others_.size() && others_[before] < own_[i]) ++before;
    const size_t rank = i + 1 + before;
    if (i == 0) result.first_rank = static_cast<int64_t>(rank);
    if (rank > own_.size()) break;
    result.average_precision += static_cast<double>(i + 1) / static_cast<double>(rank);
  }
  result.average_precision /= static_cast<double>(own_.size());
  return result;
}

}  // namespace redline::models::embedding
