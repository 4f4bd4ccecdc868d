// Rows of Parquet files as samples: sequence columns (lists of integers or floats, every legacy layout) and scalar
// columns, read by row group with column projection. Decoded row groups sit in a cache with a byte limit, lists of
// integers in as few bytes as they need; other rows are views onto them, so a row costs no copy.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/source.h"
#include "data/workers/batch_reader.h"

namespace redline::data {

struct ParquetOptions {
  std::string path;                  // a file, a folder (its *.parquet, also in sub-folders, sorted) or a glob
  std::vector<std::string> columns;  // empty = all columns of numbers
  // Whose length is the sample's: a list column, or an integer column that holds lengths (cheaper). Empty = the first
  // list column.
  std::string length_column;
  uint64_t max_buffer_bytes = uint64_t{2} << 30;  // of decoded row groups; at least one is always held
  bool widen_integers = false;                    // hand out 32-bit integers as I64
  bool cache_lengths = true;                      // keep lengths beside the files (.<file>.redline.len) when writable
};

class ParquetSource : public Source, public BatchReader {
 public:
  // Reads footers only. Throws DataError for: nothing found, no rows, a cut-off or foreign file, an unknown or unfit
  // column (listing what there is), files whose types differ.
  explicit ParquetSource(const ParquetOptions& options);
  ~ParquetSource() override;

  int64_t size() const override;
  // Null and empty lists (of the length column), null elements and rows of a damaged row group are bad samples.
  ReadResult read(int64_t index, measure::StageClock::Slot& slot) const override;
  // The first call reads the list levels of every row group once (values are not decoded); 0 for null and empty lists.
  // 1 without lists.
  double length(int64_t index) const override;
  std::string length_unit() const override { return "elements"; }
  std::string name(int64_t index) const override;  // "part-0.parquet row 17"
  uint64_t fingerprint() const override;
  std::vector<int32_t> locality_groups() const override;

  bool can_collate(const CollateSpec& spec) const override;
  std::vector<BadRow> read_batch(std::span<const int64_t> indices, const BatchPlan& plan, Batch& batch,
                                 measure::StageClock::Slot& slot) const override;
  void prefetch(std::span<const int64_t> indices) const;  // decodes what these rows need, in the calling thread

  struct Column {
    std::string name;
    Dtype dtype = Dtype::I64;
    bool is_list = false;
  };
  const std::vector<Column>& columns() const;
  int64_t num_row_groups() const;
  uint64_t table_bytes() const override;  // from the footers
  struct CacheStats {
    int64_t hits = 0, misses = 0;
    uint64_t bytes = 0;
  };
  CacheStats cache_stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::data
