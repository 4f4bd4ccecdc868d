// Parquet's repetition and definition levels (the RLE / bit-packed hybrid, parquet-format Encodings.md) and what they
// say about the rows of a list column. Pure computation on memory, so that it can be fuzzed and tested without files;
// damage throws DataError.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace redline::data::parquet_rows {

// Bits needed for levels 0..max_level.
int level_bits(int max_level);

// Decodes `count` levels, one byte each, into out; throws when the bytes do not hold them or a level exceeds max_level.
void decode_levels(std::span<const uint8_t> bytes, int max_level, int64_t count, uint8_t* out);

// How levels map to rows. A definition level of `repeated_def` or more means an element exists; one less an empty list;
// still less a null list; max_def a value that is not null. This covers three-level lists, the two-level legacy forms
// and bare repeated fields.
struct ListLevels {
  int max_def = 0;
  int repeated_def = 1;
};

enum class RowProblem : uint8_t { None, NullList, NullElement };

// Grows by pages; rows may span pages. `expected_rows` bounds what a damaged page may claim.
class ListRows {
 public:
  ListRows(ListLevels levels, int64_t expected_rows);

  // Levels of one page; def may be empty when max_def is 0. Returns the number of non-null values that follow.
  int64_t add_page(std::span<const uint8_t> rep, std::span<const uint8_t> def);
  // The last page had null elements: its values must be spread (spread_values).
  bool page_has_null_elements() const { return page_nulls_; }
  // Elements so far, null ones included.
  int64_t elements() const { return elements_; }
  int64_t rows() const { return row_; }
  void finish();  // throws unless exactly expected_rows came

  const std::vector<uint32_t>& offsets() const { return offsets_; }   // rows + 1 after finish()
  const std::vector<uint8_t>& problems() const { return problems_; }  // RowProblem per row; empty = none at all
  std::vector<uint32_t> take_offsets() { return std::move(offsets_); }
  std::vector<uint8_t> take_problems() { return std::move(problems_); }

 private:
  void start_row(int64_t element);
  void set_problem(RowProblem problem);
  int64_t add_page_slowly(std::span<const uint8_t> rep, std::span<const uint8_t> def);

  ListLevels levels_;
  int64_t expected_rows_ = 0, row_ = 0, elements_ = 0;  // row_: rows begun
  bool page_nulls_ = false;
  std::vector<uint32_t> offsets_;
  std::vector<uint8_t> problems_;
};

// Moves the page's non-null values (packed at the front of `values`) to the places of their elements; zeros elsewhere.
template <class T>
void spread_values(std::span<const uint8_t> def, const ListLevels& levels, std::span<T> values, int64_t num_packed) {
  auto to = static_cast<int64_t>(values.size());
  int64_t from = num_packed;
  for (auto i = static_cast<int64_t>(def.size()) - 1; i >= 0; --i) {
    const int level = def[static_cast<size_t>(i)];
    if (level < levels.repeated_def) continue;
    values[static_cast<size_t>(--to)] = level == levels.max_def ? values[static_cast<size_t>(--from)] : T{};
  }
}

}  // namespace redline::data::parquet_rows
