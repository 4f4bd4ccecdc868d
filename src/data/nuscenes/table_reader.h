// Reads one nuScenes table, a JSON array of flat objects of up to gigabytes, row by row: blocks of whole rows go to
// several threads, which parse them in place and keep what the caller wants of them. Memory is a few blocks, whatever
// the table's size; rows come back in the order of the file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/nuscenes/token.h"

namespace redline::data::nuscenes {

// The wanted fields of a row, valid during the call. Each getter throws DataError with file, row and token when the
// field is missing or of another type.
class TableRow {
 public:
  Token token(size_t column) const;
  std::string_view text(size_t column) const;
  int64_t integer(size_t column) const;
  bool flag(size_t column) const;
  // Numbers of a list, or of a list of lists one after the other; exactly `count` of them.
  void numbers(size_t column, double* to, size_t count) const;
  size_t count(size_t column) const;  // how many numbers a list has
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  friend class RowParser;
  enum class Type : uint8_t { Missing, Null, Text, Number, Flag, List, Other };
  struct Value {
    Type type = Type::Missing;
    bool flag = false;
    std::string_view text;      // Text, Number
    size_t begin = 0, end = 0;  // List: of `list`
  };
  const Value& need(size_t column, Type type, const char* what) const;
  const std::vector<std::string>* columns_ = nullptr;
  const std::string* file_ = nullptr;
  int64_t row_ = 0;
  std::vector<Value> values_;
  std::vector<std::string_view> list_;  // texts of numbers
};

// Calls visit(block, row) for all rows; rows of one block come in order on one thread, blocks on any. Returns the
// number of blocks. Throws DataError for a missing file and for text that is not such a table.
int64_t visit_rows(const std::filesystem::path& file, const std::vector<std::string>& columns, int num_threads,
                   const std::function<void(int64_t block, const TableRow& row)>& visit);

// What keep(row) returns for each row, nothing left out, in the order of the file.
template <class T, class Keep>
std::vector<T> read_table(const std::filesystem::path& file, const std::vector<std::string>& columns, int num_threads,
                          const Keep& keep) {
  std::mutex mutex;
  std::vector<std::unique_ptr<std::vector<T>>> blocks;
  const auto kept_of = [&](int64_t block) -> std::vector<T>& {
    const std::lock_guard lock(mutex);
    if (blocks.size() <= static_cast<size_t>(block)) blocks.resize(static_cast<size_t>(block) + 1);
    auto& slot = blocks[static_cast<size_t>(block)];
    if (slot == nullptr) slot = std::make_unique<std::vector<T>>();
    return *slot;
  };
  visit_rows(file, columns, num_threads, [&](int64_t block, const TableRow& row) {
    if (std::optional<T> value = keep(row)) kept_of(block).push_back(std::move(*value));
  });
  std::vector<T> out;
  size_t total = 0;
  for (const auto& block : blocks) total += block == nullptr ? 0 : block->size();
  out.reserve(total);
  for (auto& block : blocks) {
    if (block == nullptr) continue;
    for (T& value : *block) out.push_back(std::move(value));
    block.reset();
  }
  return out;
}

}  // namespace redline::data::nuscenes
