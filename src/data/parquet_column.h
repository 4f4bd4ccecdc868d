// Decodes one column of one row group from its pages into the final array. Arrow reads pages, decompresses and decodes
// values; levels are decoded here, because the general reader spends most of its time on building lists that these rows
// do not need. Everything Arrow or the file can get wrong is thrown as DataError (a clause, the caller adds the place).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/array.h"

namespace parquet {
class ColumnDescriptor;
class RowGroupReader;
}  // namespace parquet

namespace redline::data {

// What a leaf column of a file is to us.
struct ParquetColumnKind {
  Dtype dtype = Dtype::I64;
  bool is_list = false;
  bool is_unsigned32 = false;  // stored in 32 bits, handed out as I64
  int max_def = 0, repeated_def = 0;
};

// The name users write: the top-level field. Empty reason = usable; otherwise why not.
struct ParquetColumnFit {
  ParquetColumnKind kind;
  std::string reason;
};
ParquetColumnFit judge_parquet_column(const parquet::ColumnDescriptor& column);

struct ParquetLimits {
  uint64_t max_column_bytes = uint64_t{8} << 30;  // of one decoded column chunk; a damaged footer may promise anything
  uint64_t max_page_bytes = uint64_t{1} << 30;    // of one allocation for a page
};

enum class StoredAs : uint8_t { AsIs, U8, I16 };  // data/parquet_narrow.h

struct ParquetColumnData {
  Dtype dtype = Dtype::I64;
  bool is_list = false;
  StoredAs stored = StoredAs::AsIs;
  std::vector<uint32_t> offsets;  // lists: rows + 1
  std::vector<uint8_t> problems;  // RowProblem per row; empty = none at all
  Array values;                   // of all rows
  uint64_t num_bytes() const { return offsets.size() * sizeof(uint32_t) + problems.size() + values.num_bytes(); }
};

ParquetColumnData decode_parquet_column(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                                        const ParquetLimits& limits, bool widen_integers);

// Only the lengths of a list column's rows: levels are read, values are not.
std::vector<uint32_t> decode_parquet_lengths(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                                             const ParquetLimits& limits);

}  // namespace redline::data
