#include "data/parquet/parquet_column.h"

#include <parquet/column_page.h>
#include <parquet/column_reader.h>
#include <parquet/encoding.h>
#include <parquet/exception.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>
#include <parquet/schema.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "data/parquet/parquet_levels.h"

namespace redline::data {

namespace {

using parquet_rows::ListLevels;
using parquet_rows::ListRows;

// The parts of one data page.
struct PageParts {
  int64_t num_levels = 0;
  std::vector<uint8_t> rep, def;  // decoded levels
  parquet::Encoding::type encoding = parquet::Encoding::PLAIN;
  std::span<const uint8_t> values;
};

std::span<const uint8_t> take_levels_v1(std::span<const uint8_t>& bytes, parquet::Encoding::type encoding) {
  if (encoding != parquet::Encoding::RLE) throw DataError("its levels are in the long deprecated BIT_PACKED encoding");
  uint32_t size = 0;
  if (bytes.size() < sizeof(size)) throw DataError("a page is too short for its levels");
  std::memcpy(&size, bytes.data(), sizeof(size));
  if (size > bytes.size() - sizeof(size)) throw DataError("a page is too short for its levels");
  const auto levels = bytes.subspan(sizeof(size), size);
  bytes = bytes.subspan(sizeof(size) + size);
  return levels;
}

// `levels_left` is what the footer still allows.
void split_page(const parquet::Page& page, const ParquetColumnKind& kind, int64_t levels_left, PageParts& parts) {
  const auto& data = static_cast<const parquet::DataPage&>(page);
  if (data.num_values() < 0 || data.num_values() > levels_left)
    throw DataError("its pages do not hold as many values as the footer says");
  std::span<const uint8_t> bytes(page.data(), static_cast<size_t>(page.size()));
  std::span<const uint8_t> rep_bytes, def_bytes;
  if (page.type() == parquet::PageType::DATA_PAGE) {
    const auto& v1 = static_cast<const parquet::DataPageV1&>(page);
    if (kind.is_list) rep_bytes = take_levels_v1(bytes, v1.repetition_level_encoding());
    if (kind.max_def > 0) def_bytes = take_levels_v1(bytes, v1.definition_level_encoding());
  } else {
    const auto& v2 = static_cast<const parquet::DataPageV2&>(page);
    const auto rep_size = static_cast<size_t>(std::max(v2.repetition_levels_byte_length(), 0));
    const auto def_size = static_cast<size_t>(std::max(v2.definition_levels_byte_length(), 0));
    if (rep_size > bytes.size() || def_size > bytes.size() - rep_size)
      throw DataError("a page is too short for its levels");
    rep_bytes = bytes.first(rep_size);
    def_bytes = bytes.subspan(rep_size, def_size);
    bytes = bytes.subspan(rep_size + def_size);
  }
  parts.num_levels = data.num_values();
  parts.encoding = data.encoding();
  parts.values = bytes;
  const auto count = static_cast<size_t>(parts.num_levels);
  parts.rep.resize(kind.is_list ? count : 0);
  parts.def.resize(kind.max_def > 0 ? count : 0);
  if (kind.is_list) parquet_rows::decode_levels(rep_bytes, 1, parts.num_levels, parts.rep.data());
  if (kind.max_def > 0) parquet_rows::decode_levels(def_bytes, kind.max_def, parts.num_levels, parts.def.data());
}

// Values of a column chunk: the dictionary, if any, and a decoder per encoding met.
template <class Type>
class ValueDecoder {
 public:
  using T = typename Type::c_type;
  explicit ValueDecoder(const parquet::ColumnDescriptor* column) : column_(column) {}

  void set_dictionary(const parquet::DictionaryPage& page) {
    if constexpr (!std::is_same_v<T, bool>) {
      if (page.num_values() < 0 ||
          static_cast<uint64_t>(page.num_values()) > static_cast<uint64_t>(page.size()) / sizeof(T))
        throw DataError("its dictionary page is too short for its values");
      auto plain = parquet::MakeTypedDecoder<Type>(parquet::Encoding::PLAIN, column_);
      plain->SetData(page.num_values(), page.data(), page.size());
      dictionary_bytes_ = page.buffer();
      dictionary_ = parquet::MakeDictDecoder<Type>(column_);
      dictionary_->SetDict(plain.get());
    } else {
      throw DataError("a dictionary of booleans");
    }
  }

  void decode(const PageParts& page, T* out, int64_t count) {
    parquet::TypedDecoder<Type>* decoder = choose(page.encoding);
    decoder->SetData(static_cast<int>(count), page.values.data(), static_cast<int>(page.values.size()));
    if (decoder->Decode(out, static_cast<int>(count)) != count)
      throw DataError("a page holds fewer values than it says");
  }

 private:
  parquet::TypedDecoder<Type>* choose(parquet::Encoding::type encoding) {
    if constexpr (!std::is_same_v<T, bool>) {
      if (encoding == parquet::Encoding::PLAIN_DICTIONARY || encoding == parquet::Encoding::RLE_DICTIONARY) {
        if (!dictionary_) throw DataError("a page refers to a dictionary that is not there");
        return dictionary_.get();
      }
    }
    if (!plain_ || plain_encoding_ != encoding) {
      plain_ = parquet::MakeTypedDecoder<Type>(encoding, column_);
      plain_encoding_ = encoding;
    }
    return plain_.get();
  }

  const parquet::ColumnDescriptor* column_;
  std::shared_ptr<arrow::Buffer> dictionary_bytes_;
  std::unique_ptr<parquet::DictDecoder<Type>> dictionary_;
  std::unique_ptr<parquet::TypedDecoder<Type>> plain_;
  parquet::Encoding::type plain_encoding_ = parquet::Encoding::UNKNOWN;
};

bool is_data_page(const parquet::Page& page) {
  return page.type() == parquet::PageType::DATA_PAGE || page.type() == parquet::PageType::DATA_PAGE_V2;
}

struct ChunkFacts {
  int64_t rows = 0, levels = 0;
};

ChunkFacts checked_facts(parquet::RowGroupReader& group, int leaf, const ParquetLimits& limits) {
  ChunkFacts facts;
  facts.rows = group.metadata()->num_rows();
  facts.levels = group.metadata()->ColumnChunk(leaf)->num_values();
  if (facts.rows < 0 || facts.levels < facts.rows) throw DataError("its footer has sizes that cannot be");
  if (static_cast<uint64_t>(facts.levels) > limits.max_column_bytes / sizeof(double)) {
    throw DataError("its footer promises " + std::to_string(facts.levels) +
                    " values in one column of a row group, too many to hold");
  }
  return facts;
}

// Scalars are lists of one without repetition: the same code with every repetition level 0.
ParquetColumnKind as_list(const ParquetColumnKind& kind) {
  ParquetColumnKind list = kind;
  if (!kind.is_list) list.repeated_def = 0;
  return list;
}

template <class Type>
ParquetColumnData decode_typed(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                               const ParquetLimits& limits) {
  using T = typename Type::c_type;
  const parquet::ColumnDescriptor* column = group.metadata()->schema()->Column(leaf);
  const ChunkFacts facts = checked_facts(group, leaf, limits);
  ParquetColumnData data;
  data.dtype = kind.dtype;
  data.is_list = kind.is_list;
  data.values = Array::empty(kind.dtype, {facts.levels});
  const ListLevels levels{kind.max_def, as_list(kind).repeated_def};
  ListRows rows(levels, facts.rows);
  ValueDecoder<Type> decoder(column);
  PageParts parts;
  int64_t levels_done = 0;
  auto pages = group.GetColumnPageReader(leaf);
  const std::span<T> all(static_cast<T*>(data.values.data()), static_cast<size_t>(facts.levels));
  while (const auto page = pages->NextPage()) {
    if (page->type() == parquet::PageType::DICTIONARY_PAGE)
      decoder.set_dictionary(static_cast<const parquet::DictionaryPage&>(*page));
    if (!is_data_page(*page)) continue;
    split_page(*page, kind, facts.levels - levels_done, parts);
    levels_done += parts.num_levels;
    if (!kind.is_list) parts.rep.assign(static_cast<size_t>(parts.num_levels), 0);
    const int64_t before = rows.elements();
    const int64_t num_values = rows.add_page(parts.rep, parts.def);
    if (num_values > 0) decoder.decode(parts, all.data() + before, num_values);
    const auto elements = static_cast<size_t>(rows.elements() - before);
    if (rows.page_has_null_elements())
      spread_values(parts.def, levels, all.subspan(static_cast<size_t>(before), elements), num_values);
  }
  rows.finish();
  if (rows.elements() < facts.levels) {  // empty and null lists have a level but no element
    data.values = Array::wrap(kind.dtype, {rows.elements()}, data.values.memory());
  }
  data.problems = rows.take_problems();
  if (kind.is_list) data.offsets = rows.take_offsets();
  return data;
}

template <class From, class To>
Array converted(const Array& values) {
  Array out = Array::empty(sizeof(To) == 8 ? Dtype::I64 : Dtype::I32, {values.numel()});
  const auto* from = static_cast<const From*>(values.data());
  std::copy(from, from + values.numel(), out.as<To>().data());
  return out;
}

template <class Function>
auto with_our_errors(const Function& function) {
  try {
    return function();
  } catch (const parquet::ParquetException& error) {
    throw DataError(std::string("its Parquet data is damaged: ") + error.what());
  } catch (const std::bad_alloc&) {
    throw DataError("it needs more memory than there is");
  }
}

}  // namespace

uint64_t level_bytes(const ParquetColumnKind& kind) { return kind.is_list ? 2 : (kind.max_def > 0 ? 1 : 0); }

ParquetColumnFit judge_parquet_column(const parquet::ColumnDescriptor& column) {
  ParquetColumnFit fit;
  ParquetColumnKind& kind = fit.kind;
  kind.max_def = column.max_definition_level();
  kind.is_list = column.max_repetition_level() == 1;
  if (column.max_repetition_level() > 1) fit.reason = "is a list of lists";
  if (kind.max_def > 100) fit.reason = "is nested too deeply";
  // The definition level of the repeated ancestor: levels are counted from the root.
  std::vector<const parquet::schema::Node*> path;
  for (const parquet::schema::Node* node = column.schema_node().get(); node != nullptr; node = node->parent())
    path.push_back(node);
  int level = 0;
  for (auto node = path.rbegin() + 1; node != path.rend(); ++node) {
    if (!(*node)->is_required()) ++level;
    if ((*node)->is_repeated()) kind.repeated_def = level;
  }
  const auto& logical = column.logical_type();
  if (logical && logical->is_decimal()) fit.reason = "holds decimal numbers";
  switch (column.physical_type()) {
    case parquet::Type::BOOLEAN:
      kind.dtype = Dtype::Bool;
      break;
    case parquet::Type::INT32:
      kind.is_unsigned32 = column.converted_type() == parquet::ConvertedType::UINT_32;
      kind.dtype = Dtype::I32;
      break;
    case parquet::Type::INT64:
      kind.dtype = Dtype::I64;
      break;
    case parquet::Type::FLOAT:
      kind.dtype = Dtype::F32;
      break;
    case parquet::Type::DOUBLE:
      kind.dtype = Dtype::F64;
      break;
    default:
      fit.reason = "does not hold numbers";
  }
  return fit;
}

ParquetColumnData decode_parquet_column(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                                        const ParquetLimits& limits, bool widen_integers) {
  return with_our_errors([&] {
    switch (kind.dtype) {
      case Dtype::Bool:
        return decode_typed<parquet::BooleanType>(group, leaf, kind, limits);
      case Dtype::F32:
        return decode_typed<parquet::FloatType>(group, leaf, kind, limits);
      case Dtype::F64:
        return decode_typed<parquet::DoubleType>(group, leaf, kind, limits);
      case Dtype::I64:
        return decode_typed<parquet::Int64Type>(group, leaf, kind, limits);
      default:
        break;
    }
    ParquetColumnData data = decode_typed<parquet::Int32Type>(group, leaf, kind, limits);
    if (kind.is_unsigned32)
      data.values = converted<uint32_t, int64_t>(data.values);
    else if (widen_integers)
      data.values = converted<int32_t, int64_t>(data.values);
    data.dtype = data.values.dtype();
    return data;
  });
}

std::vector<uint32_t> decode_parquet_lengths(parquet::RowGroupReader& group, int leaf, const ParquetColumnKind& kind,
                                             const ParquetLimits& limits) {
  return with_our_errors([&] {
    const ChunkFacts facts = checked_facts(group, leaf, limits);
    int64_t levels_done = 0;
    ListRows rows({kind.max_def, kind.repeated_def}, facts.rows);
    PageParts parts;
    auto pages = group.GetColumnPageReader(leaf);
    while (const auto page = pages->NextPage()) {
      if (!is_data_page(*page)) continue;
      split_page(*page, kind, facts.levels - levels_done, parts);
      levels_done += parts.num_levels;
      rows.add_page(parts.rep, parts.def);
    }
    rows.finish();
    std::vector<uint32_t> lengths = rows.take_offsets();
    for (size_t i = 0; i + 1 < lengths.size(); ++i) lengths[i] = lengths[i + 1] - lengths[i];
    lengths.pop_back();
    return lengths;
  });
}

}  // namespace redline::data
