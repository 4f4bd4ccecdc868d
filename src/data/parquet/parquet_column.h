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

// A footer may promise anything. Within the first limits it is believed; beyond them only as far as the file has bytes
// to back it (kBackedPerByte each): compressed and run-length encoded data grow, but a few kilobytes never fill a
// machine.
struct ParquetLimits {
  uint64_t max_column_bytes = uint64_t{8} << 30;  // of one decoded column chunk, always
  uint64_t max_page_bytes = uint64_t{1} << 30;    // of one allocation for a page, always
  uint64_t max_group_bytes = uint64_t{1} << 29;   // while a row group is decoded
  uint64_t max_file_rows = uint64_t{1} << 25;     // a plan takes about 16 bytes for each
  static constexpr uint64_t kBackedPerByte = 64;
};

enum class StoredAs : uint8_t { AsIs, U8, I16 };  // data/parquet/parquet_narrow.h

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

// The page's levels, one byte each, beside the values of a list or of a column with nulls.
uint64_t level_bytes(const ParquetColumnKind& kind);

// Only the lengths of a list column's rows: levels are read, values are not.
std::vector<uint32_t> decode_parquet_lengths(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                                             const ParquetLimits& limits);

}  // namespace redline::data
