// Numbers with and without units, declared in strings.h. Parsers accept the whole text or nothing.
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <limits>

#include "core/strings.h"

namespace redline {

namespace {

struct Quantity {
  double value = 0;
  std::string unit;  // lower case, without blanks around it
};

// A number at the front of `text`, and the letters that follow it; both are taken off.
std::optional<Quantity> take_quantity(std::string_view& text) {
  const char* end = text.data() + text.size();
  Quantity quantity;
  const auto [after, error] = std::from_chars(text.data(), end, quantity.value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(quantity.value) || quantity.value < 0) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(after - text.data()));
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() &&
         ((text.front() >= 'a' && text.front() <= 'z') || (text.front() >= 'A' && text.front() <= 'Z'))) {
    quantity.unit += text.front();
    text.remove_prefix(1);
  }
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  quantity.unit = to_lower(quantity.unit);
  return quantity;
}

double seconds_of_unit(const std::string& unit) {
  if (unit == "ns") return 1e-9;
  if (unit == "us") return 1e-6;
  if (unit == "ms") return 1e-3;
  if (unit.empty() || unit == "s" || unit == "sec" || unit == "second" || unit == "seconds") return 1;
  if (unit == "m" || unit == "min" || unit == "minute" || unit == "minutes") return 60;
  if (unit == "h" || unit == "hour" || unit == "hours") return 3600;
  if (unit == "d" || unit == "day" || unit == "days") return 86400;
  return 0;
}

// HH:MM:SS or Lightning's DD:HH:MM:SS.
std::optional<double> clock_seconds(std::string_view text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() != 3 && parts.size() != 4) return std::nullopt;
  static constexpr std::array<double, 4> kWeights = {86400, 3600, 60, 1};
  double total = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<int64_t> value = parse_int(parts[i]);
    if (!value || *value < 0) return std::nullopt;
    total += static_cast<double>(*value) * kWeights[4 - parts.size() + i];
  }
  return total;
}

std::string three_digits(double value) {
  char text[32];
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  std::string trimmed = text;
  if (trimmed.find('.') != std::string::npos) {
    while (trimmed.back() == '0') trimmed.pop_back();
    if (trimmed.back() == '.') trimmed.pop_back();
  }
  return trimmed;
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1023.5 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return three_digits(value) + " " + kUnits[unit];
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "unknown";
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds < 0.9995e-6) return three_digits(seconds * 1e9) + " ns";
  if (seconds < 0.9995e-3) return three_digits(seconds * 1e6) + " us";
  if (seconds < 0.9995) return three_digits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return three_digits(seconds) + " s";
  const double rounded = std::min(std::round(seconds), 9e15);
  const auto whole = static_cast<long long>(rounded);
  char text[64];
  if (whole < 3600) {
    std::snprintf(text, sizeof text, "%lld min %02lld s", whole / 60, whole % 60);
  } else if (whole < 86400) {
    std::snprintf(text, sizeof text, "%lld h %02lld min", whole / 3600, whole % 3600 / 60);
  } else {
    std::snprintf(text, sizeof text, "%lld d %02lld h", whole / 86400, whole % 86400 / 3600);
  }
  return text;
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return format_double(value);
  if (value < 0) return "-" + format_count(-value);
  static constexpr std::array<const char*, 5> kUnits = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  for (; value >= 999.5 && unit + 1 < kUnits.size(); ++unit) value /= 1000;
  return three_digits(value) + kUnits[unit];
}

std::optional<uint64_t> parse_bytes(std::string_view text) {
  const std::string clean = trim(text);
  if (const std::optional<int64_t> plain = parse_int(clean)) {
    return *plain >= 0 ? std::optional<uint64_t>(static_cast<uint64_t>(*plain)) : std::nullopt;
  }
  std::string_view rest = clean;
  const std::optional<Quantity> quantity = take_quantity(rest);
  if (!quantity || !rest.empty()) return std::nullopt;
  std::string unit = quantity->unit;
  if (!unit.empty() && unit.back() == 'b') unit.pop_back();
  // "8G" means 8 GiB, as in Slurm, Docker and systemd; "8GB" means 8e9.
  const bool decimal = quantity->unit.size() == 2 && quantity->unit.back() == 'b';
  if (!unit.empty() && unit.back() == 'i') unit.pop_back();
  const size_t power = unit.empty() ? 0 : std::string_view(" kmgtpe").find(unit.front());
  if (unit.size() > 1 || power == std::string_view::npos || (power == 0 && quantity->unit.find('i') == 0))
    return std::nullopt;
  const double bytes = std::round(quantity->value * std::pow(decimal ? 1000.0 : 1024.0, static_cast<double>(power)));
  if (!(bytes < 18446744073709551616.0)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

std::optional<double> parse_seconds(std::string_view text) {
  const std::string clean = trim(text);
  if (clean.find(':') != std::string::npos) return clock_seconds(clean);
  if (clean.empty()) return std::nullopt;
  std::string_view rest = clean;
  double total = 0;
  bool first = true;
  while (!rest.empty()) {
    const std::optional<Quantity> quantity = take_quantity(rest);
    if (!quantity) return std::nullopt;
    const double scale = seconds_of_unit(quantity->unit);
    const bool bare = quantity->unit.empty();
    if (scale == 0 || (bare && !(first && rest.empty()))) return std::nullopt;
    total += quantity->value * scale;
    first = false;
  }
  return total;
}

std::optional<int64_t> parse_int(std::string_view text) {
  const std::string clean = trim(text);
  std::string digits;
  for (size_t i = 0; i < clean.size(); ++i) {
    const bool digit = clean[i] >= '0' && clean[i] <= '9';
    if (clean[i] == '_' && i > 0 && i + 1 < clean.size() && clean[i - 1] != '_') continue;  // 1_000_000, as in YAML 1.1
    if (!digit && !(i == 0 && (clean[i] == '-' || clean[i] == '+'))) return std::nullopt;
    if (clean[i] != '+') digits += clean[i];
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  const std::string clean = to_lower(trim(text));
  const bool negative = starts_with(clean, "-");
  const std::string_view magnitude = std::string_view(clean).substr(negative || starts_with(clean, "+") ? 1 : 0);
  if (magnitude == "nan" || magnitude == ".nan") return std::numeric_limits<double>::quiet_NaN();
  double value = std::numeric_limits<double>::infinity();
  if (magnitude != "inf" && magnitude != ".inf" && magnitude != "infinity") {
    const char* end = magnitude.data() + magnitude.size();
    if (magnitude.empty() || (magnitude.front() != '.' && (magnitude.front() < '0' || magnitude.front() > '9')))
      return {};
    const auto [after, error] = std::from_chars(magnitude.data(), end, value);
    if (error != std::errc() || after != end) return {};
  }
  return negative ? -value : value;
}

std::string format_double(double value) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() ? std::string(text.data(), end) : "nan";
}

}  // namespace redline
