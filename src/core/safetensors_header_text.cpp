// A parser for exactly the JSON that a safetensors header may be: no recursion, so depth cannot exhaust the stack, and
// each refusal can name the tensor it happened in. A general JSON library would accept more and say less.
#include "core/safetensors_header_text.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "core/strings.h"

namespace redline {
namespace {

// A cursor over the header text that knows exactly the grammar of the format.
class HeaderText {
 public:
  HeaderText(std::string_view text, const std::string& file_name) : text_(text), file_(file_name) {}

  StoredHeader parse() {
    StoredHeader header;
    if (text_.empty() || text_[0] != '{') refuse("it does not start with '{'");
    at_ = 1;
    bool metadata_seen = false;
    parse_members([&](const std::string& name) {
      if (name == "__metadata__") {
        if (metadata_seen) refuse("duplicate key '__metadata__'");
        metadata_seen = true;
        parse_metadata(header.metadata);
        return;
      }
      if (header.entries.size() >= kMaxHeaderEntries)
        refuse("more than " + std::to_string(kMaxHeaderEntries) + " entries");
      header.entries.push_back(parse_entry(name));
    });
    skip_space();
    if (at_ != text_.size()) refuse("text after the closing '}' at byte " + std::to_string(at_));
    return header;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { refuse_header(file_, what); }

  [[noreturn]] void refuse_at(std::string_view expected) const {
    std::string found = at_ < text_.size() ? "'" + printable(text_.substr(at_, 1)) + "'" : "the end";
    std::string deep =
        at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '[') ? " (nested deeper than the format allows)" : "";
    refuse("bad JSON at byte " + std::to_string(at_) + ": expected " + std::string(expected) + ", found " + found +
           deep + (where_.empty() ? "" : " in '" + shortened_name(where_) + "'"));
  }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  bool peek(char c) const { return at_ < text_.size() && text_[at_] == c; }
  void expect(char c, std::string_view what) {
    skip_space();
    if (!peek(c)) refuse_at(what);
    ++at_;
  }

  // The members of an object whose '{' was read; calls on_member after each key and colon.
  template <class OnMember>
  void parse_members(OnMember on_member) {
    skip_space();
    if (peek('}')) {
      ++at_;
      return;
    }
    for (;;) {
      skip_space();
      const std::string key = parse_string("a key in quotes");
      expect(':', "':'");
      skip_space();
      on_member(key);
      skip_space();
      if (peek(',')) {
        ++at_;
        continue;
      }
      if (!peek('}')) refuse_at("',' or '}'");
      ++at_;
      return;
    }
  }

  void parse_metadata(std::map<std::string, std::string>& metadata) {
    where_ = "__metadata__";
    if (!peek('{')) refuse_at("an object of texts");
    ++at_;
    parse_members([&](const std::string& key) {
      std::string value = parse_string("a text in quotes");
      if (metadata.size() >= kMaxHeaderEntries)
        refuse("more than " + std::to_string(kMaxHeaderEntries) + " metadata entries");
      if (!metadata.emplace(key, std::move(value)).second)
        refuse("duplicate metadata key '" + shortened_name(key) + "'");
    });
    where_.clear();
  }

  StoredEntry parse_entry(const std::string& name) {
    where_ = name;
    StoredEntry entry;
    entry.name = name;
    if (!peek('{')) refuse_at("an object with dtype, shape and data_offsets");
    ++at_;
    bool has_type = false, has_shape = false, has_offsets = false;
    parse_members([&](const std::string& key) {
      if (key == "dtype" && !has_type) {
        has_type = true;
        entry.type = parse_type(name);
      } else if (key == "shape" && !has_shape) {
        has_shape = true;
        for (uint64_t dim : parse_integers(kMaxTensorRank, "shape")) {
          if (dim > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            refuse("tensor '" + shortened_name(name) + "': a shape does not fit 63 bits");
          }
          entry.shape.push_back(static_cast<int64_t>(dim));
        }
      } else if (key == "data_offsets" && !has_offsets) {
        has_offsets = true;
        const std::vector<uint64_t> offsets = parse_integers(2, "data_offsets");
        if (offsets.size() != 2) refuse("tensor '" + shortened_name(name) + "': data_offsets needs two numbers");
        entry.begin = offsets[0];
        entry.end = offsets[1];
      } else {
        const bool known = key == "dtype" || key == "shape" || key == "data_offsets";
        refuse("tensor '" + shortened_name(name) + "' has " + (known ? "duplicate" : "unknown") + " key '" +
               shortened_name(key) + "'");
      }
    });
    if (!has_type || !has_shape || !has_offsets) {
      refuse("tensor '" + shortened_name(name) + "' lacks " +
             (!has_type    ? "dtype"
              : !has_shape ? "shape"
                           : "data_offsets"));
    }
    where_.clear();
    return entry;
  }

  StoredType parse_type(const std::string& tensor) {
    const std::string word = parse_string("the name of a type in quotes");
    if (const auto type = find_stored_type(word)) return *type;
    refuse("tensor '" + shortened_name(tensor) + "' has the unknown type '" + shortened_name(word) + "'");
  }

  std::vector<uint64_t> parse_integers(size_t limit, std::string_view what) {
    std::vector<uint64_t> values;
    if (!peek('[')) refuse_at("'['");
    ++at_;
    skip_space();
    if (peek(']')) {
      ++at_;
      return values;
    }
    for (;;) {
      skip_space();
      if (values.size() == limit) {
        refuse("tensor '" + shortened_name(where_) + "': " + std::string(what) + " has more than " +
               std::to_string(limit) + " numbers");
      }
      values.push_back(parse_unsigned(what));
      skip_space();
      if (peek(',')) {
        ++at_;
        continue;
      }
      if (!peek(']')) refuse_at("',' or ']'");
      ++at_;
      return values;
    }
  }

  uint64_t parse_unsigned(std::string_view what) {
    const std::string place = "tensor '" + shortened_name(where_) + "': " + std::string(what);
    if (peek('-')) refuse(place + " has a negative number");
    uint64_t value = 0;
    const char* first = text_.data() + at_;
    const char* last = text_.data() + text_.size();
    const auto [end, error] = std::from_chars(first, last, value);
    if (error == std::errc::result_out_of_range) refuse(place + " has a number over 64 bits");
    if (error != std::errc()) refuse_at("a number that is not negative");
    if (*first == '0' && end - first > 1) refuse(place + " has a number with a leading zero");
    at_ += static_cast<size_t>(end - first);
    if (peek('.') || peek('e') || peek('E')) refuse(place + " has a number that is not an integer");
    return value;
  }

  std::string parse_string(std::string_view expected) {
    if (!peek('"')) refuse_at(expected);
    ++at_;
    std::string out;
    for (;;) {
      const size_t plain = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20)
        ++at_;
      out.append(text_.substr(plain, at_ - plain));
      if (at_ >= text_.size()) refuse("bad JSON: a text has no closing quote");
      if (text_[at_] == '"') {
        ++at_;
        break;
      }
      if (text_[at_] != '\\') refuse("bad JSON at byte " + std::to_string(at_) + ": control character in a text");
      ++at_;
      parse_escape(out);
    }
    if (!valid_utf8(out)) refuse("a text before byte " + std::to_string(at_) + " is not valid UTF-8");
    return out;
  }

  void parse_escape(std::string& out) {
    if (at_ >= text_.size()) refuse("bad JSON: a text ends inside an escape");
    const char c = text_[at_++];
    switch (c) {
      case '"':
      case '\\':
      case '/':
        out += c;
        return;
      case 'b':
        out += '\b';
        return;
      case 'f':
        out += '\f';
        return;
      case 'n':
        out += '\n';
        return;
      case 'r':
        out += '\r';
        return;
      case 't':
        out += '\t';
        return;
      case 'u':
        break;
      default:
        refuse("bad JSON at byte " + std::to_string(at_ - 1) + ": unknown escape");
    }
    uint32_t code = parse_hex4();
    if (code >= 0xDC00 && code <= 0xDFFF) refuse("bad JSON: a lone low surrogate in a text");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (text_.substr(at_, 2) != "\\u") refuse("bad JSON: a lone high surrogate in a text");
      at_ += 2;
      const uint32_t low = parse_hex4();
      if (low < 0xDC00 || low > 0xDFFF) refuse("bad JSON: a lone high surrogate in a text");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  uint32_t parse_hex4() {
    uint32_t value = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + 4) refuse("bad JSON: \\u needs four hexadecimal digits");
    at_ += 4;
    return value;
  }

  static void append_utf8(std::string& out, uint32_t code) {
    auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | (code >> 6)), put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | (code >> 12)), put(0x80 | ((code >> 6) & 0x3F)), put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | (code >> 18)), put(0x80 | ((code >> 12) & 0x3F)), put(0x80 | ((code >> 6) & 0x3F)),
          put(0x80 | (code & 0x3F));
    }
  }

  // Strict UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF.
  static bool valid_utf8(std::string_view text) {
    size_t i = 0;
    auto at = [&](size_t k) { return static_cast<unsigned char>(text[k]); };
    while (i < text.size()) {
      const unsigned lead = at(i);
      if (lead < 0x80) {
        ++i;
        continue;
      }
      const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
      if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return false;
      for (size_t k = 1; k < length; ++k) {
        if ((at(i + k) & 0xC0) != 0x80) return false;
      }
      const unsigned second = at(i + 1);
      if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) || (lead == 0xF0 && second < 0x90) ||
          (lead == 0xF4 && second > 0x8F)) {
        return false;
      }
      i += length;
    }
    return true;
  }

  std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  std::string where_;  // the tensor being read, for messages
};

}  // namespace

StoredHeader parse_header_text(std::string_view text, const std::string& file_name) {
  return HeaderText(text, file_name).parse();
}

}  // namespace redline
