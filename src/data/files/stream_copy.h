// Copies a row into a batch past the caches. A batch is larger than the cache and is read by another thread later;
// storing it the usual way reads every line first and pushes the decoder's own data out, which showed as 2 % of a FLAC
// epoch.
#pragma once

#include <cstddef>

namespace redline::data {

// Copies `bytes` from `in` to `out` and zeroes the rest of the row up to `row_bytes`.
void stream_padded_row(std::byte* out, const std::byte* in, size_t bytes, size_t row_bytes);

}  // namespace redline::data
