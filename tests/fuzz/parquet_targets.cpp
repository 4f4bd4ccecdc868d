#include <algorithm>

#include "core/error.h"
#include "data/parquet/parquet_files.h"
#include "data/parquet/parquet_levels.h"
#include "data/parquet/parquet_source.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;

constexpr int64_t kMostRowsRead = 512;

// Each column of each row group, and the lengths alone.
void check_groups(const std::string& path) {
  const ParquetFiles files(path, {}, {.max_column_bytes = uint64_t{64} << 20, .max_page_bytes = uint64_t{64} << 20});
  for (const auto& group : files.row_groups()) {
    try {
      const auto columns = files.decode(group, true);
      for (size_t c = 0; c < columns.size(); ++c) {
        const auto& column = columns[c];
        const size_t rows = column.is_list ? column.offsets.size() - 1 : static_cast<size_t>(column.values.numel());
        require(static_cast<int64_t>(rows) == group.num_rows, "a column has as many rows as its group");
        require(column.problems.empty() || column.problems.size() == rows, "problems belong to rows");
        if (!column.is_list) continue;
        require(column.offsets.back() == static_cast<uint64_t>(column.values.numel()), "offsets end where values end");
        const auto lengths = files.decode_lengths(group, c);
        for (size_t r = 0; r < rows; ++r)
          require(lengths[r] == column.offsets[r + 1] - column.offsets[r], "lengths agree with offsets");
      }
    } catch (const DataError&) {
    }
  }
}

// The way a job goes: lengths of all rows for the plan, then rows as samples. Accepted when one row is.
bool read_rows(const std::string& path) {
  static measure::StageClock clock{1};
  ParquetOptions options;
  options.path = path;
  options.max_buffer_bytes = uint64_t{16} << 20;
  options.cache_lengths = false;
  const ParquetSource source(options);
  bool accepted = false;
  for (int64_t row = 0; row < std::min(source.size(), kMostRowsRead); ++row) {
    const double length = source.length(row);
    const auto result = source.read(row, clock.slot(0));
    const auto* sample = std::get_if<Sample>(&result);
    if (sample == nullptr) continue;
    require(length >= 1, "a row that can be read has a length");
    accepted = true;
  }
  return accepted;
}

bool read_parquet(std::span<const std::byte> bytes) {
  const MemoryFile file(text_of(bytes));
  try {
    check_groups(file.path());
  } catch (const DataError&) {
  }
  try {
    return read_rows(file.path());
  } catch (const DataError&) {
    return false;
  }
}

bool read_levels(std::span<const std::byte> bytes) {
  if (bytes.size() < 4) return false;
  const auto* p = reinterpret_cast<const uint8_t*>(bytes.data());
  const int max_level = 1 + p[0] % 7;
  const int64_t count = 1 + p[1] + 256 * (p[2] % 16);
  std::vector<uint8_t> levels(static_cast<size_t>(count));
  try {
    parquet_rows::decode_levels({p + 4, bytes.size() - 4}, max_level, count, levels.data());
    for (const uint8_t level : levels) require(level <= max_level, "levels stay within their maximum");
    std::vector<uint8_t> rep(levels.size());
    for (size_t i = 0; i < rep.size(); ++i) rep[i] = levels[i] & 1;
    parquet_rows::ListRows rows({max_level, 1 + p[3] % max_level}, count);
    const int64_t values = rows.add_page(rep, levels);
    std::vector<int> spread(static_cast<size_t>(rows.elements()));
    parquet_rows::spread_values<int>(levels, {max_level, 1 + p[3] % max_level}, spread, values);
    return true;
  } catch (const DataError&) {
    return false;
  }
}

// Maximum level, count (two bytes), repeated level, then runs.
std::vector<std::string> level_seeds() {
  return {std::string("\x00\x0F\x00\x00\x03\xAA\x10\x00", 8), std::string("\x02\x1F\x00\x01\x40\x02", 6),
          std::string("\x00\x05\x00\x00\x0C\x00", 6)};
}

}  // namespace

std::vector<Target> parquet_targets() {
  const auto seeds = [] {
    std::vector<std::string> files;
    for (const char* name : {"tiny_plain", "tiny_dictionary", "tiny_v2", "tiny_nulls", "tiny_delta"})
      files.push_back(fixture(std::string("parquet/") + name + ".parquet"));
    return files;
  };
  return {{"parquet", read_parquet, seeds, {}}, {"parquet_levels", read_levels, level_seeds, {}}};
}

}  // namespace redline::fuzz
