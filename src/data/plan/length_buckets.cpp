#include "data/plan/length_buckets.h"

#include <algorithm>
#include <bit>

namespace redline::data {

namespace {

constexpr size_t kBins = size_t{1} << 16;
size_t bin_of(float length) { return std::bit_cast<uint32_t>(length) >> 16; }

}  // namespace

std::vector<double> quantile_edges(std::span<const float> lengths, std::span<const uint32_t> kept, int num_buckets) {
  std::vector<uint32_t> count(kBins, 0);
  for (uint32_t sample : kept) ++count[bin_of(lengths[sample])];

  // Where each rank falls: its bin, and how many of the bin come before it.
  struct Rank {
    size_t bin, within;
  };
  std::vector<Rank> ranks;
  size_t bin = 0, before = 0;
  for (int b = 1; b < num_buckets; ++b) {
    const size_t rank = static_cast<size_t>(b) * kept.size() / static_cast<size_t>(num_buckets);
    while (before + count[bin] <= rank) before += count[bin++];
    ranks.push_back({bin, rank - before});
  }
  // The lengths of those bins alone are sorted.
  std::vector<std::vector<float>> members(ranks.size());
  std::vector<uint8_t> slot(kBins, UINT8_MAX);
  for (size_t r = 0; r < ranks.size(); ++r) {
    if (slot[ranks[r].bin] == UINT8_MAX) slot[ranks[r].bin] = static_cast<uint8_t>(r);
  }
  for (uint32_t sample : kept) {
    const uint8_t to = slot[bin_of(lengths[sample])];
    if (to != UINT8_MAX) members[to].push_back(lengths[sample]);
  }
  for (auto& values : members) std::sort(values.begin(), values.end());
  std::vector<double> edges;
  for (const Rank& rank : ranks) edges.push_back(members[slot[rank.bin]][rank.within]);
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

std::vector<uint8_t> bucket_numbers(std::span<const float> lengths, std::span<const double> edges) {
  // Per bin the edges wholly below it, and whether an edge lies inside.
  std::vector<uint8_t> below(kBins, 0);
  std::vector<uint8_t> mixed(kBins, 0);
  for (double edge : edges) {
    const size_t bin = edge <= 0.0 ? 0 : bin_of(static_cast<float>(edge));
    mixed[bin] = 1;
    for (size_t b = bin + 1; b < kBins; ++b) ++below[b];
  }
  std::vector<uint8_t> numbers(lengths.size());
  for (size_t i = 0; i < lengths.size(); ++i) {
    const size_t bin = bin_of(lengths[i]);
    numbers[i] = below[bin];
    if (mixed[bin] != 0) {
      numbers[i] = static_cast<uint8_t>(std::upper_bound(edges.begin(), edges.end(), static_cast<double>(lengths[i])) -
                                        edges.begin());
    }
  }
  return numbers;
}

}  // namespace redline::data
