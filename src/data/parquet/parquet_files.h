// The files behind a ParquetSource: which they are, what their footers say, and row groups decoded on request. Files
// are opened anew for each row group (a set may have more files than a process may hold open) and must then be the ones
// whose footers were read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/files/path_guard.h"
#include "data/parquet/parquet_column.h"

namespace arrow {
class MemoryPool;
}
namespace parquet {
class FileMetaData;
}

namespace redline::data {

// A column of the set: the same in every file.
struct ParquetSetColumn {
  std::string name;
  ParquetColumnKind kind;
  std::vector<int> leaf;  // per file
};

struct ParquetRowGroup {
  int32_t file = 0, group = 0;  // group within the file
  int64_t first_row = 0;        // in the whole set
  int64_t first_row_in_file = 0;
  int64_t num_rows = 0;
};

class ParquetFiles {
 public:
  // `columns` empty = all usable ones. Throws DataError (see ParquetSource).
  ParquetFiles(const std::string& path, const std::vector<std::string>& columns, const ParquetLimits& limits = {});
  ~ParquetFiles();

  size_t num_files() const { return files_.size(); }
  struct File {
    std::string name;  // below the folder, or the base name
    std::filesystem::path path;
    uint64_t size = 0;
    int64_t mtime_ns = 0;
    std::shared_ptr<parquet::FileMetaData> metadata;
  };
  const File& file(int32_t number) const { return files_[static_cast<size_t>(number)]; }
  const std::vector<ParquetSetColumn>& columns() const { return columns_; }
  const std::vector<ParquetRowGroup>& row_groups() const { return row_groups_; }
  int64_t num_rows() const { return num_rows_; }
  uint64_t fingerprint() const { return fingerprint_; }
  // Bytes of a row group when decoded, from the footer (lists: levels of the chunk).
  uint64_t decoded_bytes(const ParquetRowGroup& group, bool widen_integers) const;
  uint64_t stored_bytes(const ParquetRowGroup& group) const;  // on disk, of the chosen columns
  // The most that decoding it takes for a while: levels, and integers before they are widened, beside the values.
  uint64_t peak_bytes(const ParquetRowGroup& group, bool widen_integers) const;

  // Throw DataError with a clause that does not name the file.
  std::vector<ParquetColumnData> decode(const ParquetRowGroup& group, bool widen_integers) const;
  ParquetColumnData decode_column(const ParquetRowGroup& group, size_t column, bool widen_integers) const;
  std::vector<uint32_t> decode_lengths(const ParquetRowGroup& group, size_t column) const;

 private:
  void find_files(const std::string& path);
  void read_footer(File& file);
  void check_rows(const File& file, int64_t rows) const;
  void choose_columns(const std::vector<std::string>& wanted);
  void check_groups() const;
  template <class Function>
  auto with_row_group(const ParquetRowGroup& group, const Function& function) const;
  int find_leaf(const File& file, const std::string& name, ParquetColumnKind& kind) const;

  ParquetLimits limits_;
  std::unique_ptr<arrow::MemoryPool> pool_;
  std::unique_ptr<PathGuard> guard_;  // null when the user named the files themselves
  std::vector<File> files_;
  std::vector<ParquetSetColumn> columns_;
  std::vector<ParquetRowGroup> row_groups_;
  int64_t num_rows_ = 0;
  uint64_t fingerprint_ = 0;
};

}  // namespace redline::data
