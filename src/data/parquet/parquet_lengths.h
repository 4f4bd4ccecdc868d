// The length of every row of a Parquet set, read once: from the levels of a list column, or from an integer column that
// holds lengths. Kept beside each file as .<file>.redline.len when the folder is writable, keyed by the file's size and
// mtime and the column.
#pragma once

#include <cstdint>
#include <vector>

#include "data/parquet/parquet_files.h"

namespace redline::data {

// Rows of a row group that cannot be decoded get length 1, so that no filter hides them before they are read and named.
std::vector<uint32_t> parquet_lengths(const ParquetFiles& files, size_t column, bool use_cache);

}  // namespace redline::data
