// metrics.csv: one row per step, one column per metric, as spreadsheets and pandas like it. A new column rewrites the
// file (atomically); rows are appended. Not for several threads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace redline::measure {

class CsvFile {
 public:
  // Continues an existing file: keeps its columns and its rows up to `resume_step`; all rows are dropped when it is
  // negative. Throws DiskError, or DataError when an existing file has no `step` column. Rows that cannot be written
  // later wait (measure/kept_writes.h).
  explicit CsvFile(const std::filesystem::path& path, int64_t resume_step = -1);
  ~CsvFile();

  // Steps must grow; the empty map writes nothing.
  void row(int64_t step, const std::map<std::string, double>& values);
  void flush();  // tries again what waited

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace redline::measure
