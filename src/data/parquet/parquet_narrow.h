// Integers of a decoded row group kept in as few bytes as they need: token ids rarely need four. A shuffled table lives
// in memory as a whole, so this is most of a run's memory, and a batch reads that much less of it.
#pragma once

#include "data/parquet/parquet_column.h"

namespace redline::data {

// Lists of integers that fit eight or sixteen bits are stored so; everything else stays as it is.
void narrow_integers(ParquetColumnData& column);

size_t stored_size(const ParquetColumnData& column);  // bytes of one value in memory

// `count` values from `first` on as column.dtype.
void copy_values(const ParquetColumnData& column, size_t first, size_t count, void* out);

}  // namespace redline::data
