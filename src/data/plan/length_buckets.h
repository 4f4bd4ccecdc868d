// Quantile edges of a million lengths and the bucket of each, in a few milliseconds: lengths are non-negative floats,
// whose bits sort as integers, so a histogram over the upper half of the bits replaces sorting and searching.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace redline::data {

// The lengths at ranks n/k, 2n/k, ... (k-1)n/k of `kept`, without repetitions: exact.
std::vector<double> quantile_edges(std::span<const float> lengths, std::span<const uint32_t> kept, int num_buckets);

// For every length the number of edges at or below it.
std::vector<uint8_t> bucket_numbers(std::span<const float> lengths, std::span<const double> edges);

}  // namespace redline::data
