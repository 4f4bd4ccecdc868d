// Where the items of a query's own class stand among its neighbours, nearest first: all that recall@k and mAP@R need.
// Equal distances are ordered by the rows' numbers, as a stable sort would: where every embedding is the same point
// nothing is told apart, and a rule that favours the own class would call that perfect.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace redline::models::embedding {

struct Neighbours {
  int64_t first_rank = 0;          // of the nearest of its class, from 1; 0: it is alone in its class
  double average_precision = 0.0;  // at R, the number of others of its class
};

// Works on one query at a time; keeps memory between queries, so one for each thread.
class NeighbourRanks {
 public:
  // first_rank is exact up to `deepest`; beyond it, it is above it.
  explicit NeighbourRanks(int64_t deepest) : deepest_(deepest) {}
  void look_to(int64_t deepest) { deepest_ = deepest; }

  // `distances` to all items in an order in which the query's class is [begin, end); `rows` are the items' numbers.
  Neighbours of(std::span<const double> distances, std::span<const int64_t> rows, int64_t query, int64_t begin,
                int64_t end);

 private:
  struct Item {
    double distance;
    int64_t row;
    bool operator<(const Item& other) const {
      return distance < other.distance || (distance == other.distance && row < other.row);
    }
  };
  void collect_others(std::span<const double> distances, std::span<const int64_t> rows, int64_t begin, int64_t end);

  int64_t deepest_;
  std::vector<Item> own_, others_;
};

}  // namespace redline::models::embedding
