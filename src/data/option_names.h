// Rows of a data set that others name: guides' claims, campaigns that vary them.
#pragma once

namespace redline::data {

inline constexpr const char* kNumWorkers = "num_workers";

}  // namespace redline::data
