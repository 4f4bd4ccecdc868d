#include "data/parquet/parquet_source.h"

#include <algorithm>
#include <cstring>
#include <mutex>

#include "core/check.h"
#include "core/error.h"
#include "data/parquet/parquet_cache.h"
#include "data/parquet/parquet_lengths.h"
#include "data/parquet/parquet_levels.h"
#include "data/parquet/parquet_narrow.h"
#include "data/workers/collate.h"
#include "data/workers/item_memory.h"

namespace redline::data {

namespace {

using parquet_rows::RowProblem;

constexpr int64_t kCoarseShift = 10;
constexpr size_t kNoColumn = static_cast<size_t>(-1);

// A row found: its decoded group and its number there.
struct RowAt {
  const DecodedRowGroup* group = nullptr;
  size_t row = 0;
};

// Names and the length column of a request, with the length column added to the projection when it is not in it.
std::vector<std::string> projection(const ParquetOptions& options) {
  std::vector<std::string> columns = options.columns;
  const bool missing = std::find(columns.begin(), columns.end(), options.length_column) == columns.end();
  if (!columns.empty() && !options.length_column.empty() && missing) columns.push_back(options.length_column);
  return columns;
}

void prefetch_bytes(const std::byte* begin, size_t count) {
  constexpr size_t kLine = 64, kMost = 1024;  // the hardware follows from there
  for (size_t at = 0; at < std::min(count, kMost); at += kLine) __builtin_prefetch(begin + at);
}

Array allocate_field(const BatchPlan& plan, Dtype dtype, Shape shape) {
  return plan.allocator != nullptr ? plan.allocator->allocate(dtype, std::move(shape))
                                   : Array::empty(dtype, std::move(shape));
}

}  // namespace

struct ParquetSource::Impl {
  explicit Impl(const ParquetOptions& wanted)
      : options(wanted),
        files(wanted.path, projection(wanted),
              {.max_group_bytes =
                   item_limit_bytes(static_cast<int64_t>(std::min<uint64_t>(wanted.max_buffer_bytes, INT64_MAX)))}),
        cache(files, wanted.max_buffer_bytes, wanted.widen_integers) {
    for (const auto& column : files.columns()) {
      Dtype dtype = column.kind.dtype;
      if (dtype == Dtype::I32 && (wanted.widen_integers || column.kind.is_unsigned32)) dtype = Dtype::I64;
      columns.push_back({column.name, dtype, column.kind.is_list});
    }
    choose_length_column();
    const auto& groups = files.row_groups();
    for (const auto& group : groups) starts.push_back(group.first_row);
    starts.push_back(files.num_rows());
    size_t g = 0;
    for (int64_t row = 0; row < files.num_rows(); row += int64_t{1} << kCoarseShift) {
      while (row >= starts[g + 1]) ++g;
      coarse.push_back(static_cast<uint32_t>(g));
    }
  }

  void choose_length_column() {
    for (size_t c = 0; c < columns.size(); ++c) {
      const bool named = !options.length_column.empty();
      if (named ? columns[c].name == options.length_column : columns[c].is_list) {
        length_column = c;
        break;
      }
    }
    if (length_column == kNoColumn) return;
    const Column& column = columns[length_column];
    if (!column.is_list && column.dtype != Dtype::I32 && column.dtype != Dtype::I64) {
      throw DataError("The length column '" + column.name + "' of '" + options.path +
                      "' is neither a list nor an integer. Name one that is.");
    }
  }

  size_t group_of(int64_t index) const {
    size_t g = coarse[static_cast<size_t>(index >> kCoarseShift)];
    while (index >= starts[g + 1]) ++g;
    return g;
  }

  size_t find_column(std::string_view name) const {
    for (size_t c = 0; c < columns.size(); ++c)
      if (columns[c].name == name) return c;
    return kNoColumn;
  }

  std::string row_name(int64_t index) const {
    const auto& group = files.row_groups()[group_of(index)];
    return files.file(group.file).name + " row " + std::to_string(group.first_row_in_file + index - group.first_row);
  }

  // Why a row cannot be used, or empty.
  std::string problem_of(const RowAt& at) const {
    if (!at.group->broken.empty()) return "its row group cannot be decoded: " + at.group->broken;
    for (size_t c = 0; c < columns.size(); ++c) {
      const ParquetColumnData& data = at.group->columns[c];
      const auto problem = data.problems.empty() ? RowProblem::None : static_cast<RowProblem>(data.problems[at.row]);
      if (problem == RowProblem::NullList || (problem == RowProblem::NullElement && !data.is_list))
        return "its column '" + columns[c].name + "' is null";
      if (problem == RowProblem::NullElement) return "its column '" + columns[c].name + "' has a null element";
      if (c == length_column && data.is_list && data.offsets[at.row] == data.offsets[at.row + 1])
        return "its column '" + columns[c].name + "' is an empty list";
    }
    return {};
  }

  bool is_usable(const RowAt& at) const {
    if (!at.group->broken.empty()) return false;
    for (const ParquetColumnData& data : at.group->columns)
      if (!data.problems.empty() && data.problems[at.row] != 0) return false;
    if (length_column == kNoColumn || !columns[length_column].is_list) return true;
    const auto& offsets = at.group->columns[length_column].offsets;
    return offsets[at.row] != offsets[at.row + 1];
  }

  std::shared_ptr<const DecodedRowGroup> load(size_t group, measure::StageClock::Slot& slot) {
    const measure::StageScope scope(slot, measure::Stage::Decode);
    bool decoded = false;
    auto rows = cache.get(group, &decoded);
    if (decoded)
      slot.bytes_read.fetch_add(static_cast<int64_t>(files.stored_bytes(files.row_groups()[group])),
                                std::memory_order_relaxed);
    return rows;
  }

  void find_rows(std::span<const int64_t> indices, std::vector<RowAt>& rows,
                 std::vector<std::shared_ptr<const DecodedRowGroup>>& holders, measure::StageClock::Slot& slot) {
    rows.resize(indices.size());
    size_t held = kNoColumn;
    for (size_t i = 0; i < indices.size(); ++i) {
      REDLINE_CHECK(indices[i] >= 0 && indices[i] < files.num_rows(), "the plan only names rows of the source");
      const size_t group = group_of(indices[i]);
      const DecodedRowGroup* found = cache.resident(group);
      if (found == nullptr) {
        if (group != held) holders.push_back(load(group, slot));
        held = group;
        found = holders.back().get();
      }
      rows[i] = {found, static_cast<size_t>(indices[i] - starts[group])};
      if (length_column != kNoColumn && columns[length_column].is_list && found->broken.empty()) {
        __builtin_prefetch(found->columns[length_column].offsets.data() + rows[i].row);
      }
    }
  }

  void collate_list(const std::vector<RowAt>& rows, size_t column, const CollateField& field, const BatchPlan& plan,
                    Batch& batch) const;
  void collate_scalar(const std::vector<RowAt>& rows, size_t column, const CollateField& field, const BatchPlan& plan,
                      Batch& batch) const;

  ParquetOptions options;
  ParquetFiles files;
  mutable RowGroupCache cache;
  std::vector<Column> columns;
  size_t length_column = kNoColumn;
  std::vector<int64_t> starts;   // first row of each group, and the end
  std::vector<uint32_t> coarse;  // group of every 1024th row
  std::once_flag lengths_once;
  std::vector<uint32_t> lengths;
};

void ParquetSource::Impl::collate_list(const std::vector<RowAt>& rows, size_t column, const CollateField& field,
                                       const BatchPlan& plan, Batch& batch) const {
  const size_t size = dtype_size(columns[column].dtype);
  const auto count = static_cast<int64_t>(rows.size());
  const auto cut =
      static_cast<uint32_t>(plan.max_length > 0 ? std::min<int64_t>(plan.max_length, UINT32_MAX) : UINT32_MAX);
  struct Piece {
    const ParquetColumnData* data;
    uint32_t first, length;
  };
  thread_local std::vector<Piece> pieces;
  pieces.resize(rows.size());
  int64_t longest = 0, sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const ParquetColumnData& data = rows[i].group->columns[column];
    const uint32_t first = data.offsets[rows[i].row];
    const uint32_t length = std::min(data.offsets[rows[i].row + 1] - first, cut);
    pieces[i] = {&data, first, length};
    const size_t stored = stored_size(data);
    prefetch_bytes(static_cast<const std::byte*>(data.values.data()) + size_t{first} * stored, size_t{length} * stored);
    longest = std::max<int64_t>(longest, length);
    sum += length;
  }
  const int64_t multiple = std::max<int64_t>(1, field.pad_to_multiple);
  longest = (longest + multiple - 1) / multiple * multiple;
  Array values = allocate_field(plan, columns[column].dtype, {count, longest});
  auto* out = static_cast<std::byte*>(values.data());
  for (const Piece& piece : pieces) {
    const size_t bytes = size_t{piece.length} * size;
    copy_values(*piece.data, piece.first, piece.length, out);
    const size_t padding = static_cast<size_t>(longest) - piece.length;
    if (padding > 0) fill_padding(out + bytes, padding, columns[column].dtype, field.pad_value);
    out += static_cast<size_t>(longest) * size;
  }
  batch.fields.emplace_back(field.name, std::move(values));
  if (!field.length_name.empty()) {
    Array true_lengths = allocate_field(plan, Dtype::I64, {count});
    for (size_t i = 0; i < pieces.size(); ++i) true_lengths.as<int64_t>()[i] = pieces[i].length;
    batch.fields.emplace_back(field.length_name, std::move(true_lengths));
  }
  if (field.name == plan.collate.counted_field) {
    batch.items = sum;
    batch.padded_items = longest * count;
  }
}

void ParquetSource::Impl::collate_scalar(const std::vector<RowAt>& rows, size_t column, const CollateField& field,
                                         const BatchPlan& plan, Batch& batch) const {
  const size_t size = dtype_size(columns[column].dtype);
  const auto count = static_cast<int64_t>(rows.size());
  Array values = allocate_field(plan, columns[column].dtype, {count});
  auto* out = static_cast<std::byte*>(values.data());
  for (const RowAt& at : rows) {
    std::memcpy(out, static_cast<const std::byte*>(at.group->columns[column].values.data()) + at.row * size, size);
    out += size;
  }
  batch.fields.emplace_back(field.name, std::move(values));
  if (!field.length_name.empty()) {
    Array ones = allocate_field(plan, Dtype::I64, {count});
    std::fill(ones.as<int64_t>().begin(), ones.as<int64_t>().end(), 1);
    batch.fields.emplace_back(field.length_name, std::move(ones));
  }
}

ParquetSource::ParquetSource(const ParquetOptions& options) : impl_(std::make_unique<Impl>(options)) {}
ParquetSource::~ParquetSource() = default;

int64_t ParquetSource::size() const { return impl_->files.num_rows(); }
uint64_t ParquetSource::fingerprint() const { return impl_->files.fingerprint(); }
std::string ParquetSource::name(int64_t index) const { return impl_->row_name(index); }
const std::vector<ParquetSource::Column>& ParquetSource::columns() const { return impl_->columns; }
int64_t ParquetSource::num_row_groups() const { return static_cast<int64_t>(impl_->files.row_groups().size()); }

uint64_t ParquetSource::table_bytes() const {
  uint64_t bytes = 0;
  for (const auto& group : impl_->files.row_groups())
    bytes += impl_->files.decoded_bytes(group, impl_->options.widen_integers);
  return bytes;
}

ParquetSource::CacheStats ParquetSource::cache_stats() const {
  const auto stats = impl_->cache.stats();
  return {stats.hits, stats.misses, stats.bytes};
}

double ParquetSource::length(int64_t index) const {
  Impl& impl = *impl_;
  if (impl.length_column == kNoColumn) return 1.0;
  std::call_once(impl.lengths_once,
                 [&] { impl.lengths = parquet_lengths(impl.files, impl.length_column, impl.options.cache_lengths); });
  return impl.lengths[static_cast<size_t>(index)];
}

std::vector<int32_t> ParquetSource::locality_groups() const {
  std::vector<int32_t> groups(static_cast<size_t>(size()));
  const auto& row_groups = impl_->files.row_groups();
  for (size_t g = 0; g < row_groups.size(); ++g) {
    std::fill_n(groups.begin() + row_groups[g].first_row, row_groups[g].num_rows, static_cast<int32_t>(g));
  }
  return groups;
}

ReadResult ParquetSource::read(int64_t index, measure::StageClock::Slot& slot) const {
  REDLINE_CHECK(index >= 0 && index < size(), "the plan only names rows of the source");
  Impl& impl = *impl_;
  const size_t group = impl.group_of(index);
  std::shared_ptr<const DecodedRowGroup> rows = impl.load(group, slot);
  const RowAt at{rows.get(), static_cast<size_t>(index - impl.starts[group])};
  if (!impl.is_usable(at)) return BadSample{impl.row_name(index), impl.problem_of(at)};
  Sample sample;
  sample.id = index;
  sample.fields.reserve(impl.columns.size());
  for (size_t c = 0; c < impl.columns.size(); ++c) {
    const ParquetColumnData& data = rows->columns[c];
    const size_t first = data.is_list ? data.offsets[at.row] : at.row;
    Shape shape;
    if (data.is_list) shape.push_back(data.offsets[at.row + 1] - data.offsets[at.row]);
    if (data.stored != StoredAs::AsIs) {
      Array values = Array::empty(data.dtype, std::move(shape));
      copy_values(data, first, static_cast<size_t>(values.numel()), values.data());
      sample.fields.emplace_back(impl.columns[c].name, std::move(values));
      continue;
    }
    void* begin = static_cast<std::byte*>(data.values.data()) + first * dtype_size(data.dtype);
    sample.fields.emplace_back(impl.columns[c].name,
                               Array::wrap(data.dtype, std::move(shape), std::shared_ptr<void>(rows, begin)));
  }
  return sample;
}

bool ParquetSource::can_collate(const CollateSpec& spec) const {
  return std::all_of(spec.fields.begin(), spec.fields.end(), [&](const CollateField& field) {
    return field.optional || impl_->find_column(field.name) != kNoColumn;
  });
}

std::vector<BadRow> ParquetSource::read_batch(std::span<const int64_t> indices, const BatchPlan& plan, Batch& batch,
                                              measure::StageClock::Slot& slot) const {
  thread_local std::vector<RowAt> rows;
  std::vector<std::shared_ptr<const DecodedRowGroup>> holders;  // empty, without memory, when everything is resident
  impl_->find_rows(indices, rows, holders, slot);
  const measure::StageScope scope(slot, measure::Stage::Collate);
  std::vector<BadRow> bad;
  for (size_t i = 0; i < rows.size(); ++i)
    if (!impl_->is_usable(rows[i])) bad.push_back({i, {impl_->row_name(indices[i]), impl_->problem_of(rows[i])}});
  if (!bad.empty()) return bad;
  batch.fields.clear();
  batch.items = batch.padded_items = static_cast<int64_t>(rows.size());
  if (rows.empty()) return bad;
  batch.fields.reserve(plan.collate.fields.size() * 2);
  for (const CollateField& field : plan.collate.fields) {
    const size_t column = impl_->find_column(field.name);
    if (column == kNoColumn) {
      REDLINE_CHECK(field.optional, "can_collate() was asked before");
      continue;
    }
    if (impl_->columns[column].is_list)
      impl_->collate_list(rows, column, field, plan, batch);
    else
      impl_->collate_scalar(rows, column, field, plan, batch);
  }
  return bad;
}

void ParquetSource::prefetch(std::span<const int64_t> indices) const {
  size_t last = kNoColumn;
  for (const int64_t index : indices) {
    const size_t group = impl_->group_of(index);
    if (group == last || impl_->cache.resident(group) != nullptr) continue;
    impl_->cache.get(group);
    last = group;
  }
}

}  // namespace redline::data
