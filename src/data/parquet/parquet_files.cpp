#include "data/parquet/parquet_files.h"

#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <glob.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/properties.h>
#include <parquet/schema.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/hash.h"
#include "core/philox.h"
#include "core/strings.h"

namespace redline::data {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kReadBufferBytes = int64_t{1} << 20;
constexpr char kEncrypted[] = "it is encrypted, and encrypted Parquet is not read: write it again without encryption";
constexpr int64_t kMostRows = int64_t{UINT32_MAX};  // of a set: a plan numbers samples with 32 bits

// Refuses single allocations that no sane page needs: a damaged page header may ask for 2 GiB. Plain malloc beneath, so
// that freed pages serve the rest of the program.
class CappedPool : public arrow::MemoryPool {
 public:
  explicit CappedPool(uint64_t max_bytes) : max_bytes_(static_cast<int64_t>(max_bytes)) {}
  void set_max_bytes(uint64_t max_bytes) { max_bytes_ = static_cast<int64_t>(max_bytes); }  // before any decoding
  using arrow::MemoryPool::Allocate;
  using arrow::MemoryPool::Free;
  using arrow::MemoryPool::Reallocate;
  arrow::Status Allocate(int64_t size, int64_t alignment, uint8_t** out) override {
    return size > max_bytes_ ? too_large(size) : below_->Allocate(size, alignment, out);
  }
  arrow::Status Reallocate(int64_t old_size, int64_t new_size, int64_t alignment, uint8_t** pointer) override {
    return new_size > max_bytes_ ? too_large(new_size) : below_->Reallocate(old_size, new_size, alignment, pointer);
  }
  void Free(uint8_t* buffer, int64_t size, int64_t alignment) override { below_->Free(buffer, size, alignment); }
  int64_t bytes_allocated() const override { return below_->bytes_allocated(); }
  int64_t total_bytes_allocated() const override { return below_->total_bytes_allocated(); }
  int64_t num_allocations() const override { return below_->num_allocations(); }
  std::string backend_name() const override { return below_->backend_name(); }

 private:
  static arrow::Status too_large(int64_t size) {
    return arrow::Status::OutOfMemory("a page asks for ", size, " bytes");
  }
  arrow::MemoryPool* below_ = arrow::system_memory_pool();
  int64_t max_bytes_;
};

parquet::ReaderProperties reader_properties(arrow::MemoryPool* pool) {
  parquet::ReaderProperties properties(pool);
  properties.enable_buffered_stream();  // a chunk is streamed, not held whole beside its decoded form
  properties.set_buffer_size(kReadBufferBytes);
  properties.set_page_checksum_verification(true);
  return properties;
}

// Takes over the descriptor of a checked file.
std::shared_ptr<arrow::io::RandomAccessFile> arrow_file(const DataFile& file) {
  const int copy = ::dup(file.fd());
  auto opened = copy < 0 ? arrow::Status::IOError("dup") : arrow::Status::OK();
  if (opened.ok()) {
    auto result = arrow::io::ReadableFile::Open(copy);
    if (result.ok()) return *result;
    ::close(copy);
    opened = result.status();
  }
  throw DataError("it cannot be read: " + opened.ToString());
}

bool is_glob(const std::string& path) { return path.find_first_of("*?[") != std::string::npos; }

std::vector<fs::path> files_of_glob(const std::string& pattern) {
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_BRACE, nullptr, &found);
  std::vector<fs::path> paths;
  if (status == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Every *.parquet below, hidden files and those beginning with an underscore (writers' bookkeeping) left out.
std::vector<fs::path> files_of_folder(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (auto it = fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied);
       it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (name.empty() || name.front() == '.' || name.front() == '_') {
      if (it->is_directory()) it.disable_recursion_pending();
      continue;
    }
    if (!it->is_directory() && ends_with(to_lower(name), ".parquet")) paths.push_back(it->path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The raw footer: names, sizes, offsets and statistics of every chunk, so it changes when the content does.
uint64_t footer_hash(const DataFile& file) {
  std::array<std::byte, 8> tail{};
  if (file.size() < 12 || !file.read_at(file.size() - 8, tail)) throw DataError("it is too short for a Parquet file");
  if (std::memcmp(tail.data() + 4, "PARE", 4) == 0) throw DataError(kEncrypted);
  if (std::memcmp(tail.data() + 4, "PAR1", 4) != 0) {
    std::array<std::byte, 4> head{};
    const bool begun = file.read_at(0, head) && std::memcmp(head.data(), "PAR1", 4) == 0;
    throw DataError(begun ? "it is cut off (it begins like a Parquet file but has no footer)"
                          : "it is not a Parquet file");
  }
  uint32_t size = 0;
  std::memcpy(&size, tail.data(), sizeof(size));
  if (size > file.size() - 12) throw DataError("its footer is damaged (it would be larger than the file)");
  std::vector<std::byte> footer(size);
  if (!file.read_at(file.size() - 8 - size, footer)) throw DataError("its footer cannot be read");
  return hash64(footer, file.size());
}

std::string usable_columns(const parquet::SchemaDescriptor& schema) {
  std::vector<std::string> names;
  for (int i = 0; i < schema.num_columns(); ++i)
    if (judge_parquet_column(*schema.Column(i)).reason.empty())
      names.push_back("'" + schema.GetColumnRoot(i)->name() + "'");
  return names.empty() ? "none" : join(names, ", ");
}

std::string kind_text(const ParquetColumnKind& kind) {
  constexpr const char* kElements[] = {"float", "double", "int32", "int64", "bool", "bool"};  // in the order of Dtype
  const char* element = kElements[static_cast<size_t>(kind.dtype)];
  return kind.is_list ? std::string("a list of ") + element : std::string("a single ") + element;
}

// The footer's word on a column of a row group; parts of it are read, and may be refused, only here.
std::unique_ptr<parquet::ColumnChunkMetaData> chunk_of(const ParquetFiles::File& file, int32_t group, int leaf) {
  try {
    return file.metadata->RowGroup(group)->ColumnChunk(leaf);
  } catch (const parquet::ParquetException& error) {
    throw DataError("The footer of '" + printable(file.path.string()) + "' is damaged (" + printable(error.what()) +
                    "). Make or fetch the file again.");
  }
}

[[noreturn]] void refuse_file(const fs::path& path, const std::string& reason) {
  const bool dotted = ends_with(reason, ".");
  throw DataError("The Parquet file '" + path.string() + "' cannot be used: " + reason + (dotted ? "" : ".") +
                  " Write it again or leave it out.");
}

}  // namespace

ParquetFiles::~ParquetFiles() = default;

ParquetFiles::ParquetFiles(const std::string& path, const std::vector<std::string>& columns,
                           const ParquetLimits& limits)
    : limits_(limits) {
  auto pool = std::make_unique<CappedPool>(std::min(limits.max_page_bytes, limits.max_group_bytes));
  CappedPool& pages = *pool;
  pool_ = std::move(pool);
  find_files(path);
  uint64_t largest_file = 0;
  int64_t row = 0;
  for (size_t f = 0; f < files_.size(); ++f) {
    File& file = files_[f];
    try {
      read_footer(file);
    } catch (const DataError& error) {
      refuse_file(file.path, error.what());
    }
    largest_file = std::max(largest_file, file.size);
    int64_t row_in_file = 0;
    for (int g = 0; g < file.metadata->num_row_groups(); ++g) {
      const int64_t rows = file.metadata->RowGroup(g)->num_rows();
      if (rows < 0 || rows > INT64_MAX / 2 - row)
        refuse_file(file.path, "its footer is damaged: " + std::to_string(rows) + " rows");
      check_rows(file, row_in_file + rows);
      if (rows > 0) row_groups_.push_back({static_cast<int32_t>(f), g, row, row_in_file, rows});
      row += rows;
      row_in_file += rows;
    }
  }
  pages.set_max_bytes(
      std::min(limits.max_page_bytes, std::max(limits.max_group_bytes, ParquetLimits::kBackedPerByte * largest_file)));
  num_rows_ = row;
  if (num_rows_ > kMostRows) {
    throw DataError("'" + path + "' holds " + std::to_string(num_rows_) + " rows; a data set may have " +
                    std::to_string(kMostRows) + ". Split it into several runs.");
  }
  if (num_rows_ == 0)
    throw DataError("'" + path + "' holds no rows: " + std::to_string(files_.size()) + " Parquet file(s), all empty.");
  choose_columns(columns);
  check_groups();
}

void ParquetFiles::check_rows(const File& file, int64_t rows) const {
  const uint64_t most = std::max(limits_.max_file_rows, ParquetLimits::kBackedPerByte * file.size);
  if (static_cast<uint64_t>(rows) <= most) return;
  refuse_file(file.path, "its footer promises " + std::to_string(rows) + " rows in a file of " +
                             std::to_string(file.size) + " bytes, where at most " + std::to_string(most) +
                             " are believed");
}

// Before anything is sized by a footer's numbers: they must agree with each other, with the file and with the limits.
void ParquetFiles::check_groups() const {
  for (const ParquetRowGroup& group : row_groups_) {
    const File& file = files_[static_cast<size_t>(group.file)];
    for (const auto& column : columns_) {
      const auto chunk = chunk_of(file, group.group, column.leaf[static_cast<size_t>(group.file)]);
      const int64_t values = chunk->num_values(), stored = chunk->total_compressed_size();
      const bool fits = column.kind.is_list ? values >= group.num_rows : values == group.num_rows;
      if (!fits || stored < 0 || static_cast<uint64_t>(stored) > file.size) {
        refuse_file(file.path, "its footer has sizes that cannot be: " + std::to_string(group.num_rows) +
                                   " rows in row group " + std::to_string(group.group) + ", " + std::to_string(values) +
                                   " values in " + std::to_string(stored) + " bytes in its column '" + column.name +
                                   "'");
      }
    }
    const uint64_t peak = peak_bytes(group, true);
    const uint64_t most = std::max(limits_.max_group_bytes, ParquetLimits::kBackedPerByte * stored_bytes(group));
    if (peak <= most) continue;
    throw DataError("The Parquet file '" + file.path.string() + "' cannot be used: its row group " +
                    std::to_string(group.group) + " needs " + format_bytes(peak) + " when decoded, but has only " +
                    format_bytes(stored_bytes(group)) + " in the file, and " + format_bytes(limits_.max_group_bytes) +
                    " (half of max_buffer_bytes) is allowed then. Raise max_buffer_bytes, name fewer columns, or write "
                    "it again with smaller row groups.");
  }
}

void ParquetFiles::find_files(const std::string& path) {
  std::error_code code;
  std::vector<fs::path> paths;
  if (fs::is_directory(path, code)) {
    paths = files_of_folder(path);
    guard_ = std::make_unique<PathGuard>(path, false);
  } else if (is_glob(path) && !fs::exists(path, code)) {
    paths = files_of_glob(path);
  } else {
    paths = {path};
  }
  if (paths.empty())
    throw DataError("No Parquet file was found at '" + path +
                    "'. Name a .parquet file, a folder that holds some, or a glob.");
  for (const auto& one : paths) {
    File file;
    file.path = one;
    file.name = guard_ ? one.lexically_relative(path).string() : one.filename().string();
    files_.push_back(std::move(file));
  }
}

void ParquetFiles::read_footer(File& file) {
  OpenResult opened = guard_ ? guard_->open(file.name) : OpenResult(open_user_file(file.path));
  if (auto* failure = std::get_if<OpenFailure>(&opened)) throw DataError(failure->reason);
  const DataFile& data = std::get<DataFile>(opened);
  file.size = data.size();
  file.mtime_ns = data.mtime_ns();
  fingerprint_ = hash64(file.name, mix_key(fingerprint_, footer_hash(data)));
  try {
    file.metadata = parquet::ParquetFileReader::Open(arrow_file(data), reader_properties(pool_.get()))->metadata();
    if (file.metadata->is_encryption_algorithm_set()) throw DataError(kEncrypted);
  } catch (const parquet::ParquetException& error) {
    throw DataError(std::string("its footer is damaged: ") + error.what());
  }
}

int ParquetFiles::find_leaf(const File& file, const std::string& name, ParquetColumnKind& kind) const {
  const parquet::SchemaDescriptor& schema = *file.metadata->schema();
  std::string reason;
  for (int i = 0; i < schema.num_columns(); ++i) {
    if (schema.GetColumnRoot(i)->name() != name && schema.Column(i)->path()->ToDotString() != name) continue;
    ParquetColumnFit fit = judge_parquet_column(*schema.Column(i));
    if (fit.reason.empty()) {
      kind = fit.kind;
      return i;
    }
    reason = fit.reason;
  }
  const std::string where = "The column '" + name + "' of '" + file.path.string() + "' ";
  const std::string advice = "Usable columns: " + usable_columns(schema) + ".";
  if (!reason.empty())
    throw DataError(where + reason + "; lists or single values of integers or floats are expected. " + advice);
  throw DataError(where + "does not exist. " + advice + " model.column (or columns) says which is read.");
}

void ParquetFiles::choose_columns(const std::vector<std::string>& wanted) {
  std::vector<std::string> names = wanted;
  if (names.empty()) {
    const parquet::SchemaDescriptor& schema = *files_.front().metadata->schema();
    for (int i = 0; i < schema.num_columns(); ++i) {
      const std::string& name = schema.GetColumnRoot(i)->name();
      if (judge_parquet_column(*schema.Column(i)).reason.empty() &&
          std::find(names.begin(), names.end(), name) == names.end())
        names.push_back(name);
    }
    if (names.empty())
      throw DataError("'" + files_.front().path.string() + "' has no column of numbers or of lists of numbers.");
  }
  for (const std::string& name : names) {
    ParquetSetColumn column;
    column.name = name;
    for (const File& file : files_) {
      ParquetColumnKind kind;
      column.leaf.push_back(find_leaf(file, name, kind));
      if (&file == &files_.front()) column.kind = kind;
      if (kind.dtype != column.kind.dtype || kind.is_list != column.kind.is_list) {
        throw DataError("The column '" + name + "' is " + kind_text(column.kind) + " in '" +
                        files_.front().path.string() + "' but " + kind_text(kind) + " in '" + file.path.string() +
                        "'. Files of one set need the same types.");
      }
      column.kind.max_def = std::max(column.kind.max_def, kind.max_def);
    }
    columns_.push_back(std::move(column));
  }
}

uint64_t ParquetFiles::decoded_bytes(const ParquetRowGroup& group, bool widen_integers) const {
  const auto& file = files_[static_cast<size_t>(group.file)];
  uint64_t bytes = 0;
  for (const auto& column : columns_) {
    const int64_t values = chunk_of(file, group.group, column.leaf[static_cast<size_t>(group.file)])->num_values();
    const bool wide = (widen_integers && column.kind.dtype == Dtype::I32) || column.kind.is_unsigned32;
    bytes += static_cast<uint64_t>(std::max<int64_t>(values, 0)) * (wide ? 8 : dtype_size(column.kind.dtype));
    if (column.kind.is_list) bytes += static_cast<uint64_t>(group.num_rows) * sizeof(uint32_t);
  }
  return bytes;
}

uint64_t ParquetFiles::peak_bytes(const ParquetRowGroup& group, bool widen_integers) const {
  const auto& file = files_[static_cast<size_t>(group.file)];
  uint64_t most = 0;  // columns are decoded one after another; what is beside the values goes with each
  for (const auto& column : columns_) {
    const int leaf = column.leaf[static_cast<size_t>(group.file)];
    const auto values = static_cast<uint64_t>(std::max<int64_t>(chunk_of(file, group.group, leaf)->num_values(), 0));
    const bool widens = (widen_integers && column.kind.dtype == Dtype::I32) || column.kind.is_unsigned32;
    most = std::max(most, values * (level_bytes(column.kind) + (widens ? sizeof(int32_t) : 0)));
  }
  return decoded_bytes(group, widen_integers) + most;
}

uint64_t ParquetFiles::stored_bytes(const ParquetRowGroup& group) const {
  const auto& file = files_[static_cast<size_t>(group.file)];
  uint64_t bytes = 0;
  for (const auto& column : columns_) {
    const int64_t size =
        chunk_of(file, group.group, column.leaf[static_cast<size_t>(group.file)])->total_compressed_size();
    bytes += static_cast<uint64_t>(std::max<int64_t>(size, 0));
  }
  return bytes;
}

template <class Function>
auto ParquetFiles::with_row_group(const ParquetRowGroup& group, const Function& function) const {
  const File& file = files_[static_cast<size_t>(group.file)];
  OpenResult opened = guard_ ? guard_->open(file.name) : OpenResult(open_user_file(file.path));
  if (auto* failure = std::get_if<OpenFailure>(&opened)) throw DataError(failure->reason);
  const DataFile& data = std::get<DataFile>(opened);
  if (data.size() != file.size || data.mtime_ns() != file.mtime_ns)
    throw DataError("it was changed since its footer was read");
  try {
    const auto reader =
        parquet::ParquetFileReader::Open(arrow_file(data), reader_properties(pool_.get()), file.metadata);
    const auto row_group = reader->RowGroup(group.group);
    return function(*row_group, *file.metadata->schema());
  } catch (const parquet::ParquetException& error) {
    throw DataError(std::string("its Parquet data is damaged: ") + error.what());
  }
}

std::vector<ParquetColumnData> ParquetFiles::decode(const ParquetRowGroup& group, bool widen_integers) const {
  return with_row_group(group, [&](parquet::RowGroupReader& reader, const parquet::SchemaDescriptor& schema) {
    std::vector<ParquetColumnData> columns;
    for (const auto& column : columns_) {
      const int leaf = column.leaf[static_cast<size_t>(group.file)];
      columns.push_back(decode_parquet_column(reader, leaf, judge_parquet_column(*schema.Column(leaf)).kind, limits_,
                                              widen_integers));
    }
    return columns;
  });
}

ParquetColumnData ParquetFiles::decode_column(const ParquetRowGroup& group, size_t column, bool widen_integers) const {
  return with_row_group(group, [&](parquet::RowGroupReader& reader, const parquet::SchemaDescriptor& schema) {
    const int leaf = columns_[column].leaf[static_cast<size_t>(group.file)];
    return decode_parquet_column(reader, leaf, judge_parquet_column(*schema.Column(leaf)).kind, limits_,
                                 widen_integers);
  });
}

std::vector<uint32_t> ParquetFiles::decode_lengths(const ParquetRowGroup& group, size_t column) const {
  return with_row_group(group, [&](parquet::RowGroupReader& reader, const parquet::SchemaDescriptor& schema) {
    const int leaf = columns_[column].leaf[static_cast<size_t>(group.file)];
    return decode_parquet_lengths(reader, leaf, judge_parquet_column(*schema.Column(leaf)).kind, limits_);
  });
}

}  // namespace redline::data
