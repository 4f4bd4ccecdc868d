// Limits against hostile or mistaken files, far above any real job.
#pragma once

#include <cstddef>

namespace redline::config {

inline constexpr size_t kMaxFileBytes = size_t{1} << 20;
inline constexpr size_t kMaxNodes = 100'000;
inline constexpr size_t kMaxDepth = 64;
inline constexpr size_t kMaxBaseFiles = 16;        // one above another
inline constexpr size_t kMaxReferenceChain = 100;  // ${a} -> ${b} -> ...

}  // namespace redline::config
