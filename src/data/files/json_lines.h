// JSON objects one a line, and the fields of one object. RapidJSON is headers only and lives in a namespace of ours, so
// that no library in the same process can take its symbols or give it others (Arrow's libraries export a JSON parser).
// The iterative parser: a line of a million brackets needs heap, not stack.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#define RAPIDJSON_NAMESPACE redline::data::rapidjson
#define RAPIDJSON_NAMESPACE_BEGIN namespace redline::data::rapidjson {
#define RAPIDJSON_NAMESPACE_END }
#include <rapidjson/encodedstream.h>
#include <rapidjson/error/en.h>
#include <rapidjson/memorystream.h>
#include <rapidjson/reader.h>

namespace redline::data {

// A value directly inside the object. Strings are unescaped, numbers as they stand; texts live until the next field.
struct JsonValue {
  enum class Kind { Null, String, Number, Other };  // Other: true, false, an object, an array
  Kind kind = Kind::Null;
  std::string_view text;

  bool is_null() const { return kind == Kind::Null; }
  std::optional<std::string_view> string() const { return kind == Kind::String ? std::optional(text) : std::nullopt; }
  std::optional<double> number() const { return read<double>(); }
  std::optional<int64_t> whole_number() const { return read<int64_t>(); }

 private:
  template <class T>
  std::optional<T> read() const {
    T value{};
    if (kind != Kind::Number) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }
};

// Reads one object after the other; keep it, its buffers stay. Not shared between threads.
class JsonObjectParser {
 public:
  // Calls field(name, value) for each field of the object that is the whole text, in order, until the first mistake.
  // Returns what is wrong with the text, or nothing.
  template <class Field>
  std::optional<std::string> parse(std::string_view text, const Field& field) {
    Handler<Field> handler{field, key_};
    rapidjson::MemoryStream bytes(text.data(), text.size());
    rapidjson::EncodedInputStream<rapidjson::UTF8<>, rapidjson::MemoryStream> stream(bytes);
    constexpr unsigned kFlags =
        rapidjson::kParseIterativeFlag | rapidjson::kParseValidateEncodingFlag | rapidjson::kParseNumbersAsStringsFlag;
    const rapidjson::ParseResult result = reader_.Parse<kFlags>(stream, handler);
    if (handler.not_an_object) return "expected a JSON object in braces.";
    if (result.IsError()) {
      return std::string("not valid JSON: ") + rapidjson::GetParseError_En(result.Code()) + " At character " +
             std::to_string(result.Offset() + 1) + ".";
    }
    // A zero byte looks like the end to the parser.
    if (text.find('\0') != std::string_view::npos) return "not valid JSON: it holds a zero byte.";
    return std::nullopt;
  }

 private:
  template <class Field>
  struct Handler {
    using Size = rapidjson::SizeType;
    const Field& field;
    std::string& key;
    int64_t depth = 0;
    bool not_an_object = false;

    bool value(JsonValue::Kind kind, std::string_view text = {}) {
      if (depth == 0) return !(not_an_object = true);
      if (depth == 1) field(std::string_view(key), JsonValue{kind, text});
      return true;
    }
    bool Null() { return value(JsonValue::Kind::Null); }
    bool Bool(bool) { return value(JsonValue::Kind::Other); }
    bool RawNumber(const char* text, Size size, bool) { return value(JsonValue::Kind::Number, {text, size}); }
    bool String(const char* text, Size size, bool) { return value(JsonValue::Kind::String, {text, size}); }
    bool Key(const char* text, Size size, bool) {
      if (depth == 1) key.assign(text, size);
      return true;
    }
    bool StartObject() {
      if (depth == 1) value(JsonValue::Kind::Other);
      ++depth;
      return true;
    }
    bool StartArray() {
      if (!value(JsonValue::Kind::Other)) return false;
      ++depth;
      return true;
    }
    bool EndObject(Size) { return --depth >= 0; }
    bool EndArray(Size) { return --depth >= 0; }
    // Numbers come as text (kParseNumbersAsStringsFlag); the parser still wants to be able to call these.
    bool Int(int) { return false; }
    bool Uint(unsigned) { return false; }
    bool Int64(int64_t) { return false; }
    bool Uint64(uint64_t) { return false; }
    bool Double(double) { return false; }
  };

  rapidjson::Reader reader_;
  std::string key_;
};

// Calls read(parser, row, line) for each row that is not empty; lines count from 1.
template <class Read>
void for_each_json_line(std::string_view text, const Read& read) {
  JsonObjectParser parser;
  int line = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (row.find_first_not_of(" \t\r") != std::string_view::npos) read(parser, row, line);
  }
}

}  // namespace redline::data
