// Rows brought together by class. Sums over a class are then sums over neighbours in memory, which is what makes the
// pass over all pairs fast.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace redline::models::embedding {

struct ClassOrder {
  std::vector<int64_t> rows;      // rows of the set, class by class, in their own order within a class
  std::vector<int64_t> begin;     // class c is [begin[c], begin[c + 1]) of `rows`
  std::vector<int64_t> class_of;  // of each place in `rows`, from 0 in the order of the labels' values

  int64_t num_classes() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t count(int64_t c) const { return begin[static_cast<size_t>(c) + 1] - begin[static_cast<size_t>(c)]; }
};

ClassOrder order_by_class(std::span<const int64_t> labels);

}  // namespace redline::models::embedding
