// Text helpers without locale: the same bytes give the same answer everywhere.
#include "core/strings.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace redline {

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }

void append_hex_escape(std::string& out, unsigned char byte) {
  char text[5];
  std::snprintf(text, sizeof text, "\\x%02x", byte);
  out += text;
}

struct CodePoint {
  uint32_t value = 0;
  size_t size = 0;  // 0 = not valid UTF-8
};

// Shortest form only, no surrogates, at most U+10FFFF (RFC 3629).
CodePoint decode_utf8(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xC2 && first < 0xE0   ? 2
                      : first >= 0xE0 && first < 0xF0 ? 3
                      : first >= 0xF0 && first < 0xF5 ? 4
                                                      : 0;
  if (size == 0 || text.size() < size) return {};
  uint32_t value = first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return {};
    value = value << 6 | (byte & 0x3Fu);
  }
  const bool overlong = (size == 3 && value < 0x800) || (size == 4 && value < 0x10000);
  if (overlong || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) return {};
  return {value, size};
}

bool steers_terminal(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x061C || c == 0x200E || c == 0x200F ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string fold_spelling(std::string_view word) {
  std::string folded = to_lower(word);
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == separator) {
      parts.emplace_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return parts;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) text += separator;
    text += parts[i];
  }
  return text;
}

std::string trim(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return std::string(text);
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool ends_with(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

std::string to_lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    const size_t size = std::max<size_t>(point.size, 1);
    if (point.size == 0 || steers_terminal(point.value)) {
      for (char c : text.substr(0, size)) append_hex_escape(out, static_cast<unsigned char>(c));
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    out += printable(text.substr(0, end)) + '\n';
    text.remove_prefix(end + 1);
  }
  return out + printable(text);
}

size_t utf8_size(std::string_view text) { return decode_utf8(text).size; }

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  out.reserve(text.size() + 2);
  while (!text.empty()) {
    const CodePoint point = decode_utf8(text);
    if (point.size == 0) {
      out += "\\ufffd";
      text.remove_prefix(1);
      continue;
    }
    if (point.value == '"' || point.value == '\\') {
      out += '\\';
      out += text[0];
    } else if (point.value == '\n') {
      out += "\\n";
    } else if (point.value == '\t') {
      out += "\\t";
    } else if (steers_terminal(point.value)) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\u%04x", point.value & 0xFFFFu);
      out += escaped;
    } else {
      out += text.substr(0, point.size);
    }
    text.remove_prefix(point.size);
  }
  return out + '"';
}

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before2(b.size() + 1), before1(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) before1[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substitution = before1[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({before1[j] + 1, now[j - 1] + 1, substitution});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before2[j - 2] + 1);
    }
    std::swap(before2, before1);
    std::swap(before1, now);
  }
  return before1[b.size()];
}

std::optional<std::string> did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > 256) return std::nullopt;
  const std::string wanted = fold_spelling(word);
  const size_t limit = wanted.size() <= 4 ? 1 : wanted.size() <= 8 ? 2 : std::min<size_t>(wanted.size() / 3, 5);
  std::optional<std::string> best;
  size_t best_distance = limit + 1;
  for (const std::string& candidate : candidates) {
    const size_t longer = std::max(candidate.size(), wanted.size()),
                 shorter = std::min(candidate.size(), wanted.size());
    if (longer - shorter >= best_distance) continue;
    const size_t distance = edit_distance(wanted, fold_spelling(candidate));
    if (distance < best_distance && distance < longer) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace redline
