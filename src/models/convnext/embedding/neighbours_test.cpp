#include "models/convnext/embedding/neighbours.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/philox.h"

namespace redline::models::embedding {
namespace {

// Sorts everything, counts along the list.
Neighbours plain_neighbours(const std::vector<double>& distances, const std::vector<int64_t>& rows, int64_t query,
                            int64_t begin, int64_t end) {
  std::vector<int64_t> order(distances.size());
  std::iota(order.begin(), order.end(), 0);
  std::erase(order, query);
  const auto at = [](const auto& list, int64_t i) { return list[static_cast<size_t>(i)]; };
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return at(distances, a) != at(distances, b) ? at(distances, a) < at(distances, b) : at(rows, a) < at(rows, b);
  });
  Neighbours out;
  const int64_t size = end - begin - 1;
  int64_t seen = 0;
  for (size_t r = 0; r < order.size(); ++r) {
    if (order[r] < begin || order[r] >= end) continue;
    ++seen;
    const auto rank = static_cast<int64_t>(r) + 1;
    if (seen == 1) out.first_rank = rank;
    if (rank <= size) out.average_precision += static_cast<double>(seen) / static_cast<double>(rank);
  }
  if (size > 0) out.average_precision /= static_cast<double>(size);
  return out;
}

TEST(Neighbours, EqualThePlainCountAlsoWithEqualDistances) {
  KeyedStream draw(1, 0, 0, 0);
  int64_t deep = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const int64_t n = draw.uniform_int(2, 60), begin = draw.uniform_int(0, n - 1), end = draw.uniform_int(begin + 1, n),
                  query = draw.uniform_int(begin, end - 1);
    const int64_t values = draw.uniform_int(1, 40);  // few values: many ties
    std::vector<double> distances(static_cast<size_t>(n));
    for (double& d : distances) d = static_cast<double>(draw.uniform_int(0, values));
    std::vector<int64_t> rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    for (size_t i = rows.size() - 1; i > 0; --i)
      std::swap(rows[i], rows[static_cast<size_t>(draw.uniform_int(0, static_cast<int64_t>(i)))]);
    NeighbourRanks ranks(n);
    const Neighbours found = ranks.of(distances, rows, query, begin, end);
    const Neighbours plain = plain_neighbours(distances, rows, query, begin, end);
    ASSERT_EQ(found.first_rank, plain.first_rank) << trial;
    ASSERT_NEAR(found.average_precision, plain.average_precision, 1e-12) << trial;
    deep += found.first_rank > 1 ? 1 : 0;
    // A shallow look knows whether the first of the class is within its depth, and the precision is the same.
    NeighbourRanks shallow(2);
    const Neighbours near = shallow.of(distances, rows, query, begin, end);
    ASSERT_EQ(near.first_rank <= 2, plain.first_rank <= 2) << trial;
    ASSERT_NEAR(near.average_precision, plain.average_precision, 1e-12) << trial;
  }
  EXPECT_GT(deep, 100);  // otherwise the trials would say little
}

// The classes at the same distance: who comes first in the set decides, not who is right.
TEST(Neighbours, EqualDistancesFavourNobody) {
  NeighbourRanks ranks(8);
  const std::vector<double> same(6, 0.0);
  EXPECT_EQ(ranks.of(same, std::vector<int64_t>{0, 1, 2, 3, 4, 5}, 0, 0, 3).first_rank, 1);
  EXPECT_EQ(ranks.of(same, std::vector<int64_t>{3, 4, 5, 0, 1, 2}, 0, 0, 3).first_rank, 4);
}

TEST(Neighbours, AloneInItsClass) {
  NeighbourRanks ranks(8);
  const Neighbours found = ranks.of(std::vector<double>{0.0, 1.0}, std::vector<int64_t>{0, 1}, 0, 0, 1);
  EXPECT_EQ(found.first_rank, 0);
  EXPECT_EQ(found.average_precision, 0.0);
}

}  // namespace
}  // namespace redline::models::embedding
