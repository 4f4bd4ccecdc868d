#include "data/parquet/parquet_lengths.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/run_threads.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr char kLengthsMagic[] = "redline lengths 1\n";
constexpr int kMaxThreads = 8;

struct LengthsHead {
  uint64_t file_bytes, column, count;
  int64_t file_mtime_ns;
  uint32_t crc, unused;
};

// Hidden: readers that take every file of a folder as Parquet (pyarrow, Spark) skip names that begin with a dot.
std::filesystem::path lengths_path(const ParquetFiles::File& file) {
  return file.path.parent_path() / ("." + file.path.filename().string() + ".redline.len");
}

std::optional<std::vector<uint32_t>> load_lengths(const ParquetFiles::File& file, uint64_t column, uint64_t count) {
  std::error_code code;
  if (!std::filesystem::is_regular_file(lengths_path(file), code)) return std::nullopt;
  try {
    constexpr size_t kMagicBytes = sizeof(kLengthsMagic) - 1;
    LengthsHead head{};
    const std::string bytes = read_file(lengths_path(file), kMagicBytes + sizeof(head) + count * sizeof(uint32_t));
    if (!starts_with(bytes, kLengthsMagic) || bytes.size() != kMagicBytes + sizeof(head) + count * sizeof(uint32_t))
      return std::nullopt;
    std::memcpy(&head, bytes.data() + kMagicBytes, sizeof(head));
    if (head.file_bytes != file.size || head.file_mtime_ns != file.mtime_ns || head.column != column ||
        head.count != count)
      return std::nullopt;
    std::vector<uint32_t> lengths(count);
    std::memcpy(lengths.data(), bytes.data() + kMagicBytes + sizeof(head), count * sizeof(uint32_t));
    if (crc32c(std::as_bytes(std::span(lengths))) != head.crc) return std::nullopt;
    return lengths;
  } catch (const Error& error) {
    log_debug(std::string("Stored lengths are not used: ") + error.what());
    return std::nullopt;
  }
}

void store_lengths(const ParquetFiles::File& file, uint64_t column, std::span<const uint32_t> lengths) {
  LengthsHead head{file.size, column, lengths.size(), file.mtime_ns, crc32c(std::as_bytes(lengths)), 0};
  std::string bytes = kLengthsMagic;
  bytes.append(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes.append(reinterpret_cast<const char*>(lengths.data()), lengths.size_bytes());
  try {
    write_file_atomic(lengths_path(file), bytes);
  } catch (const Error& error) {
    log_debug(std::string("Lengths are not kept: ") + error.what());
  }
}

template <class T>
void copy_lengths(const Array& values, std::span<uint32_t> out) {
  const auto from = values.as<T>();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<uint32_t>(std::clamp<int64_t>(static_cast<int64_t>(from[i]), 0, UINT32_MAX));
}

void group_lengths(const ParquetFiles& files, const ParquetRowGroup& group, size_t column, std::span<uint32_t> out) {
  try {
    if (files.columns()[column].kind.is_list) {
      const auto lengths = files.decode_lengths(group, column);
      std::copy(lengths.begin(), lengths.end(), out.begin());
      return;
    }
    const ParquetColumnData data = files.decode_column(group, column, false);
    if (data.dtype == Dtype::I64)
      copy_lengths<int64_t>(data.values, out);
    else
      copy_lengths<int32_t>(data.values, out);
  } catch (const DataError& error) {
    log_warning("The lengths of a row group of '" + files.file(group.file).name + "' cannot be read (" + error.what() +
                "); its rows will count as bad.");
    std::fill(out.begin(), out.end(), 1u);
  }
}

}  // namespace

std::vector<uint32_t> parquet_lengths(const ParquetFiles& files, size_t column, bool use_cache) {
  std::vector<uint32_t> lengths(static_cast<size_t>(files.num_rows()));
  const uint64_t column_key = hash64(files.columns()[column].name);
  const auto& groups = files.row_groups();
  std::vector<std::span<uint32_t>> of_file(files.num_files());
  for (const auto& group : groups) {
    auto& rows = of_file[static_cast<size_t>(group.file)];
    const auto first = static_cast<size_t>(group.first_row - group.first_row_in_file);
    rows = std::span(lengths).subspan(first, static_cast<size_t>(group.first_row_in_file + group.num_rows));
  }
  std::vector<uint8_t> known(files.num_files(), 0);
  for (size_t f = 0; use_cache && f < of_file.size(); ++f) {
    if (of_file[f].empty()) continue;
    if (const auto stored = load_lengths(files.file(static_cast<int32_t>(f)), column_key, of_file[f].size())) {
      std::copy(stored->begin(), stored->end(), of_file[f].begin());
      known[f] = 1;
    }
  }
  std::atomic<size_t> next = 0;
  const int count = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
  run_threads(count, [&] {
    try {
      for (size_t g = next++; g < groups.size(); g = next++) {
        if (known[static_cast<size_t>(groups[g].file)]) continue;
        group_lengths(files, groups[g], column,
                      std::span(lengths).subspan(static_cast<size_t>(groups[g].first_row),
                                                 static_cast<size_t>(groups[g].num_rows)));
      }
    } catch (...) {
      next = groups.size();
      throw;
    }
  });
  for (size_t f = 0; use_cache && f < of_file.size(); ++f)
    if (!known[f] && !of_file[f].empty()) store_lengths(files.file(static_cast<int32_t>(f)), column_key, of_file[f]);
  return lengths;
}

}  // namespace redline::data
