// How much two groupings of the same items say about each other.
#pragma once

#include <cstdint>
#include <span>

namespace redline::models::embedding {

// I(a; b) over the mean of their entropies, from 0 to 1: scikit-learn's normalized_mutual_info_score with its default
// mean. Two groupings of one group each are equal: 1.
double normalized_mutual_information(std::span<const int64_t> a, std::span<const int64_t> b);

}  // namespace redline::models::embedding
