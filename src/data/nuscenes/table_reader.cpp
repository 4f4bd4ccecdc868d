#include "data/nuscenes/table_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/cores.h"
#include "core/error.h"
#include "core/run_threads.h"
#include "core/strings.h"
#include "data/files/json_lines.h"
#include "data/files/path_guard.h"

namespace redline::data::nuscenes {

namespace {

constexpr size_t kBlockBytes = size_t{4} << 20;
constexpr size_t kMaxRowBytes = size_t{64} << 20;
constexpr int kMaxDepth = 16;  // of lists in a row: the parser recurses

// What a sentence shows of a text that may be a whole table.
std::string shown(std::string_view text) { return printable(text.substr(0, 64)) + (text.size() > 64 ? "..." : ""); }

}  // namespace

[[noreturn]] void TableRow::fail(const std::string& problem) const {
  std::string where = printable(*file_) + ", row " + std::to_string(row_ + 1);
  for (size_t c = 0; c < columns_->size(); ++c)
    if ((*columns_)[c] == "token" && values_[c].type == Type::Text) where += " (token " + shown(values_[c].text) + ")";
  throw DataError(where + ": " + problem);
}

const TableRow::Value& TableRow::need(size_t column, Type type, const char* what) const {
  const Value& value = values_[column];
  if (value.type == Type::Missing) fail("the field '" + (*columns_)[column] + "' is missing; expected " + what + ".");
  if (value.type != type) fail("the field '" + (*columns_)[column] + "' must be " + what + ".");
  return value;
}

std::string_view TableRow::text(size_t column) const { return need(column, Type::Text, "a text").text; }
bool TableRow::flag(size_t column) const { return need(column, Type::Flag, "true or false").flag; }

Token TableRow::token(size_t column) const {
  const Value& value = need(column, Type::Text, "a token");
  if (const auto token = parse_token(value.text)) return *token;
  fail("the field '" + (*columns_)[column] + "' is '" + shown(value.text) +
       "'; expected a token of 32 hexadecimal digits.");
}

int64_t TableRow::integer(size_t column) const {
  const std::string_view text = need(column, Type::Number, "a whole number").text;
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail("the field '" + (*columns_)[column] + "' must be a whole number.");
  return value;
}

size_t TableRow::count(size_t column) const {
  const Value& value = need(column, Type::List, "a list of numbers");
  return value.end - value.begin;
}

void TableRow::numbers(size_t column, double* to, size_t count) const {
  const Value& value = need(column, Type::List, "a list of numbers");
  if (value.end - value.begin != count)
    fail("the field '" + (*columns_)[column] + "' has " + std::to_string(value.end - value.begin) +
         " numbers; expected " + std::to_string(count) + ".");
  for (size_t i = 0; i < count; ++i) {
    const std::string_view text = list_[value.begin + i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), to[i]);
    if (error != std::errc() || end != text.data() + text.size())
      fail("the field '" + (*columns_)[column] + "' must hold numbers.");
  }
}

// Fills a TableRow from the text of one object, in place. One per thread.
class RowParser {
 public:
  using Size = rapidjson::SizeType;
  RowParser(const std::vector<std::string>& columns, const std::string& file) : columns_(columns) {
    row_.columns_ = &columns;
    row_.file_ = &file;
    row_.values_.resize(columns.size());
  }

  // `text` is the object, with a zero after the block it stands in.
  const TableRow& parse(char* text, int64_t row) {
    row_.row_ = row;
    std::fill(row_.values_.begin(), row_.values_.end(), TableRow::Value{});
    row_.list_.clear();
    depth_ = 0;
    column_ = -1;
    rapidjson::InsituStringStream stream(text);
    constexpr unsigned kFlags =
        rapidjson::kParseInsituFlag | rapidjson::kParseStopWhenDoneFlag | rapidjson::kParseNumbersAsStringsFlag;
    const rapidjson::ParseResult result = reader_.Parse<kFlags>(stream, *this);
    if (result.IsError())
      row_.fail(std::string("not valid JSON: ") + rapidjson::GetParseError_En(result.Code()) + " At character " +
                std::to_string(result.Offset() + 1) + " of the row.");
    return row_;
  }

  bool Null() { return put(TableRow::Type::Null, {}); }
  bool Bool(bool value) {
    if (TableRow::Value* slot = wanted()) *slot = {TableRow::Type::Flag, value, {}, 0, 0};
    return true;
  }
  bool RawNumber(const char* text, Size size, bool) {
    if (depth_ > 1 && column_ >= 0) row_.list_.emplace_back(text, size);
    return put(TableRow::Type::Number, {text, size});
  }
  bool String(const char* text, Size size, bool) { return put(TableRow::Type::Text, {text, size}); }
  bool Key(const char* text, Size size, bool) {
    if (depth_ != 1) return true;
    column_ = -1;
    // Rows name their fields in the same order, so the next column is the likeliest.
    const std::string_view name(text, size);
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i] == name) column_ = static_cast<int>(i);
    return true;
  }
  bool StartObject() {
    if (depth_ == 1) put(TableRow::Type::Other, {});
    ++depth_;
    return true;
  }
  bool StartArray() {
    if (TableRow::Value* slot = wanted())
      *slot = {TableRow::Type::List, false, {}, row_.list_.size(), row_.list_.size()};
    ++depth_;
    return true;
  }
  bool EndArray(Size) {
    if (--depth_ == 1 && column_ >= 0) row_.values_[static_cast<size_t>(column_)].end = row_.list_.size();
    return true;
  }
  bool EndObject(Size) { return --depth_ >= 0; }
  // Numbers come as text; the parser still wants to be able to call these.
  bool Int(int) { return false; }
  bool Uint(unsigned) { return false; }
  bool Int64(int64_t) { return false; }
  bool Uint64(uint64_t) { return false; }
  bool Double(double) { return false; }

 private:
  TableRow::Value* wanted() {
    return depth_ == 1 && column_ >= 0 ? &row_.values_[static_cast<size_t>(column_)] : nullptr;
  }
  bool put(TableRow::Type type, std::string_view text) {
    if (TableRow::Value* slot = wanted()) *slot = {type, false, text, 0, 0};
    return true;
  }
  const std::vector<std::string>& columns_;
  TableRow row_;
  rapidjson::Reader reader_;
  int depth_ = 0, column_ = -1;
};

namespace {

// Whole rows of the file, block by block, for any thread. A row's end is found by its braces; texts are skipped.
class BlockReader {
 public:
  explicit BlockReader(const std::filesystem::path& path)
      : name_(path.filename().string()), path_(path.string()), file_(open_user_file(path)) {}

  struct Block {
    std::vector<char> bytes;                      // a zero at the end
    std::vector<std::pair<size_t, size_t>> rows;  // first and last character of each
    int64_t number = 0, first_row = 0;
  };
  // False at the end of the table.
  bool next(Block& block) {
    const std::lock_guard lock(mutex_);
    block.rows.clear();
    block.bytes = std::move(rest_);
    rest_.clear();
    for (bool whole_file = false; block.rows.empty();) {
      if (ended_) return false;
      if (whole_file) fail(started_ ? "it ends without a closing bracket" : "it is empty");
      if (at_ < file_.size()) fill(block.bytes);
      whole_file = at_ == file_.size();
      scan(block);
      if (block.rows.empty() && block.bytes.size() > kMaxRowBytes) fail("a row is longer than 64 MiB");
    }
    // What follows the last whole row begins the next block.
    const size_t used = block.rows.back().second + 1;
    if (!ended_) rest_.assign(block.bytes.begin() + static_cast<std::ptrdiff_t>(used), block.bytes.end());
    block.bytes.resize(used);
    block.bytes.push_back('\0');
    block.number = blocks_++;
    block.first_row = rows_;
    rows_ += static_cast<int64_t>(block.rows.size());
    return true;
  }
  const std::string& name() const { return name_; }
  int64_t blocks() const { return blocks_; }

 private:
  [[noreturn]] void fail(const std::string& problem) const {
    throw DataError(printable(path_) + " is not a nuScenes table: " + problem + " after row " + std::to_string(rows_) +
                    "; expected a JSON list of objects.");
  }

  void fill(std::vector<char>& bytes) {
    const uint64_t left = file_.size() - at_;
    const size_t wanted = static_cast<size_t>(std::min<uint64_t>(left, kBlockBytes)), before = bytes.size();
    bytes.resize(before + wanted);
    if (!file_.read_at(at_, std::as_writable_bytes(std::span(bytes).subspan(before))))
      throw DataError("The table " + printable(path_) + " cannot be read to its end.");
    at_ += wanted;
  }

  // Of one block from its beginning: the state between rows is only whether the list has begun.
  void scan(Block& block) {
    char *text = block.bytes.data(), *end = text + block.bytes.size(), *p = text;
    block.rows.clear();
    while (true) {
      p = std::find_if(p, end, [](char c) { return c != ' ' && c != '\n' && c != '\r' && c != '\t'; });
      if (p == end) return;
      if (!started_) {
        if (*p != '[') fail("it does not begin with a bracket");
        started_ = true;
        *p++ = ' ';  // a block without a whole row is read again from its beginning
        continue;
      }
      if (*p == ']') {
        if (std::any_of(p + 1, end, [](char c) { return c != ' ' && c != '\n' && c != '\r' && c != '\t'; }) ||
            at_ < file_.size())
          fail("something follows its end");
        ended_ = true;
        return;
      }
      if (*p == ',') {
        ++p;
        continue;
      }
      if (*p != '{') fail("an item is not an object");
      char* last = row_end(p, end);
      if (last == nullptr) {
        if (at_ == file_.size()) fail("it ends inside a row");
        return;
      }
      block.rows.emplace_back(p - text, last - text);
      p = last + 1;
    }
  }

  // The brace that closes the object at p; null when it lies beyond the block.
  char* row_end(char* p, const char* end) const {
    int depth = 0;
    for (; p < end; ++p) {
      switch (*p) {
        case '"':
          for (++p; p < end && *p != '"'; ++p)
            if (*p == '\\') ++p;
          break;
        case '{':
        case '[':
          if (++depth > kMaxDepth) fail("lists are nested deeper than 16");
          break;
        case '}':
        case ']':
          if (--depth == 0) return p;
          break;
        default:
          break;
      }
    }
    return nullptr;
  }

  std::string name_, path_;
  DataFile file_;
  std::mutex mutex_;
  std::vector<char> rest_;
  uint64_t at_ = 0;
  int64_t rows_ = 0, blocks_ = 0;
  bool started_ = false, ended_ = false;
};

}  // namespace

int64_t visit_rows(const std::filesystem::path& file, const std::vector<std::string>& columns, int num_threads,
                   const std::function<void(int64_t block, const TableRow& row)>& visit) {
  BlockReader reader(file);
  const std::string name = file.string();
  run_threads(std::max(1, num_threads), [&] {
    RowParser parser(columns, name);
    BlockReader::Block block;
    while (reader.next(block))
      for (size_t i = 0; i < block.rows.size(); ++i)
        visit(block.number,
              parser.parse(block.bytes.data() + block.rows[i].first, block.first_row + static_cast<int64_t>(i)));
  });
  return reader.blocks();
}

}  // namespace redline::data::nuscenes
