#include "config/yaml_writer.h"

#include <cmath>
#include <cstdio>

#include "core/strings.h"

namespace redline::config {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Safe without quotes in block and flow style, for YAML 1.1 and 1.2. Stricter than it must be: a few needless quotes
// cost nothing.
bool is_safe_plain(std::string_view text) {
  if (text.empty() || !(is_letter(text[0]) || is_digit(text[0]) || text[0] == '_' || text[0] == '/' || text[0] == '.' ||
                        (text[0] == '-' && text.size() > 1 && (is_digit(text[1]) || text[1] == '.')))) {
    return false;
  }
  for (char c : text) {
    if (!is_letter(c) && !is_digit(c) && std::string_view("_/.+-@=()").find(c) == std::string_view::npos) return false;
  }
  const bool date = text.size() >= 8 && is_digit(text[0]) && is_digit(text[1]) && is_digit(text[2]) &&
                    is_digit(text[3]) && text[4] == '-';
  return !date;
}

// A backslash in front of ${ keeps it from being a reference; backslashes in front of that are doubled.
std::string escape_references(std::string_view text) {
  std::string out;
  size_t backslashes = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') out.append(backslashes + 1, '\\');
    backslashes = text[i] == '\\' ? backslashes + 1 : 0;
    out += text[i];
  }
  return out;
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const size_t size = std::max<size_t>(utf8_size(text.substr(i)), 1);
    const std::string_view character = text.substr(i, size);
    i += size;
    const auto byte = static_cast<unsigned char>(character[0]);
    char escaped[12];
    if (character == "\"" || character == "\\") {
      out += '\\';
      out += character;
    } else if (character == "\n") {
      out += "\\n";
    } else if (character == "\t") {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      out += escaped;
    } else if (size == 2 && byte == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0) {  // C1
      std::snprintf(escaped, sizeof escaped, "\\x%02x", static_cast<unsigned char>(character[1]));
      out += escaped;
    } else if (character == "\xe2\x80\xa8" || character == "\xe2\x80\xa9") {  // line and paragraph separator
      out += character == "\xe2\x80\xa8" ? "\\u2028" : "\\u2029";
    } else {
      out += character;
    }
  }
  return out + '"';
}

std::string scalar_yaml(const Node& value, bool in_flow) {
  const std::string text = escape_references(value.text());
  if (text == "???" && in_flow) return double_quoted(text);  // YAML has no plain ? there
  if (reads_as_non_string(text)) return value.quoted() || text.empty() ? double_quoted(text) : text;
  return is_safe_plain(text) ? text : double_quoted(text);
}

std::string key_yaml(const std::string& key) {
  return is_safe_plain(key) && !reads_as_non_string(key) ? key : double_quoted(key);
}

std::string flow_yaml(const Node& value, bool inside) {
  std::string out;
  switch (value.kind()) {
    case Node::Kind::Null:
      return "null";
    case Node::Kind::Scalar:
      return scalar_yaml(value, inside);
    case Node::Kind::List:
      for (const Node& item : value.items()) out += (out.empty() ? "" : ", ") + flow_yaml(item, true);
      return "[" + out + "]";
    case Node::Kind::Map:
      for (const auto& [key, child] : value.entries())
        out += (out.empty() ? "" : ", ") + key_yaml(key) + ": " + flow_yaml(child, true);
      return "{" + out + "}";
  }
  return out;
}

void append_block(std::string& out, const Node& map, size_t indent, bool with_origins) {
  for (const auto& [key, value] : map.entries()) {
    out.append(indent, ' ');
    out += key_yaml(key) + ":";
    if (value.is_map() && !value.entries().empty()) {
      out += "\n";
      append_block(out, value, indent + 2, with_origins);
      continue;
    }
    out += " " + write_yaml_flow(value);
    if (with_origins) out += "  # " + printable(value.origin.text());
    out += "\n";
  }
}

void append_json(std::string& out, const Node& value, size_t indent);

template <class Each>
void append_json_block(std::string& out, char open, char close, size_t count, size_t indent, Each each) {
  out += open;
  for (size_t i = 0; i < count; ++i) {
    out += i == 0 ? "\n" : ",\n";
    out.append(indent + 2, ' ');
    each(i);
  }
  if (count > 0) {
    out += "\n";
    out.append(indent, ' ');
  }
  out += close;
}

std::string scalar_json(const Node& value) {
  if (!value.quoted()) {
    if (const auto flag = value.as_bool()) return *flag ? "true" : "false";
    if (const auto whole = parse_int(value.text())) return std::to_string(*whole);
    const auto real = value.as_double();
    if (real && std::isfinite(*real)) return format_double(*real);
  }
  return json_quote(value.text());
}

void append_json(std::string& out, const Node& value, size_t indent) {
  switch (value.kind()) {
    case Node::Kind::Null:
      out += "null";
      break;
    case Node::Kind::Scalar:
      out += scalar_json(value);
      break;
    case Node::Kind::List:
      append_json_block(out, '[', ']', value.items().size(), indent,
                        [&](size_t i) { append_json(out, value.items()[i], indent + 2); });
      break;
    case Node::Kind::Map:
      append_json_block(out, '{', '}', value.entries().size(), indent, [&](size_t i) {
        out += json_quote(value.entries()[i].first) + ": ";
        append_json(out, value.entries()[i].second, indent + 2);
      });
      break;
  }
}

}  // namespace

std::string write_yaml_flow(const Node& value) { return flow_yaml(value, false); }

std::string write_yaml(const Node& map, bool with_origins) {
  std::string out;
  append_block(out, map, 0, with_origins);
  return out;
}

std::string write_json(const Node& value) {
  std::string out;
  append_json(out, value, 0);
  return out + "\n";
}

}  // namespace redline::config
