#include "data/audio/name_ranges.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/strings.h"

namespace redline::data {

namespace {

constexpr size_t kMaxNames = 1'000'000;

void check_count(size_t count, std::string_view pattern) {
  if (count > kMaxNames) throw ConfigError("'" + printable(pattern) + "' stands for more than a million names.");
}

// The matching brace of text[open], or npos.
size_t matching_brace(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}' && --depth == 0) return i;
  }
  return std::string_view::npos;
}

// The comma-separated parts at the outer level; one part when there is no comma.
std::vector<std::string_view> outer_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == '}') --depth;
    if (text[i] == ',' && depth == 0) {
      parts.push_back(text.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  parts.push_back(text.substr(begin));
  return parts;
}

bool is_padded(std::string_view digits) {
  if (digits.starts_with('-')) digits.remove_prefix(1);
  return digits.size() > 1 && digits[0] == '0';
}

std::string padded(int64_t value, size_t width) {
  std::string digits = std::to_string(value < 0 ? -value : value);
  if (digits.size() + (value < 0 ? 1 : 0) < width) digits.insert(0, width - digits.size() - (value < 0 ? 1 : 0), '0');
  return value < 0 ? "-" + digits : digits;
}

// "0..511", "000..120", "10..0..5"; nullopt when it is no range.
std::optional<std::vector<std::string>> number_range(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view first = text.substr(0, dots);
  std::string_view last = text.substr(dots + 2), stride;
  if (const size_t more = last.find(".."); more != std::string_view::npos) {
    stride = last.substr(more + 2);
    last = last.substr(0, more);
  }
  const auto a = parse_int(first), b = parse_int(last);
  const auto step = stride.empty() ? std::optional<int64_t>(1) : parse_int(stride);
  if (!a || !b || !step || *step == INT64_MIN) return std::nullopt;
  const uint64_t by = static_cast<uint64_t>(std::max<int64_t>(1, *step < 0 ? -*step : *step));
  const uint64_t distance = *a <= *b ? static_cast<uint64_t>(*b) - static_cast<uint64_t>(*a)
                                     : static_cast<uint64_t>(*a) - static_cast<uint64_t>(*b);
  check_count(distance / by + 1, text);
  const size_t width = is_padded(first) || is_padded(last) ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> names;
  for (uint64_t i = 0; i <= distance / by; ++i) {
    const uint64_t value = *a <= *b ? static_cast<uint64_t>(*a) + i * by : static_cast<uint64_t>(*a) - i * by;
    names.push_back(padded(static_cast<int64_t>(value), width));
  }
  return names;
}

void expand_into(std::string_view pattern, int depth, std::vector<std::string>& out) {
  if (depth > 32)
    throw ConfigError("Braces are nested more than 32 deep in '" + printable(pattern.substr(0, 80)) + "'.");
  size_t open = pattern.find('{');
  while (open != std::string_view::npos) {
    const size_t close = matching_brace(pattern, open);
    if (close == std::string_view::npos) break;
    const std::string_view inside = pattern.substr(open + 1, close - open - 1);
    std::vector<std::string> middles;
    if (const auto parts = outer_parts(inside); parts.size() > 1) {
      for (std::string_view part : parts) expand_into(part, depth + 1, middles);
    } else if (auto range = number_range(inside)) {
      middles = std::move(*range);
    }
    if (!middles.empty()) {
      std::vector<std::string> tails;
      expand_into(pattern.substr(close + 1), depth + 1, tails);
      check_count(out.size() + middles.size() * tails.size(), pattern);
      const std::string head(pattern.substr(0, open));
      for (const auto& middle : middles) {
        for (const auto& tail : tails) out.push_back(head + middle + tail);
      }
      return;
    }
    open = pattern.find('{', open + 1);  // braces that mean themselves
  }
  out.emplace_back(pattern);
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  std::vector<std::string> names;
  expand_into(pattern, 0, names);
  return names;
}

std::vector<std::string> expand_names(std::string_view pattern) {
  std::string text(pattern);
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kStandIns{
      {{"_OP_", "_CL_"}, {"(", ")"}, {"[", "]"}, {"<", ">"}}};
  for (const auto& [open, close] : kStandIns) {
    for (size_t at = text.find(open); at != std::string::npos; at = text.find(open, at + 1)) {
      const size_t inside = at + open.size(), end = text.find(close, inside);
      if (end == std::string::npos) break;
      const std::string_view between = std::string_view(text).substr(inside, end - inside);
      if (!number_range(between) && !(open == "_OP_" && between.find(',') != std::string_view::npos)) continue;
      text.replace(end, close.size(), "}");
      text.replace(at, open.size(), "{");
    }
  }
  return expand_braces(text);
}

}  // namespace redline::data
