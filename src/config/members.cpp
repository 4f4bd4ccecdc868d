// Reads one value of a field: type, range, unit and choices, with a sentence for each way to be wrong.
#include <cmath>
#include <optional>

#include "config/fields.h"
#include "config/request/messages.h"
#include "core/strings.h"

namespace redline::config::detail {

namespace {

[[noreturn]] void wrong_value(const Node& value, const Row& row, const std::string& path,
                              const std::string& found = {}) {
  fail_at(value.origin,
          path + " must be " + expected_text(row) + ", found " + (found.empty() ? shown(value) : found) + ".");
}

void require_scalar(const Node& value, const Row& row, const std::string& path) {
  if (value.is_scalar()) return;
  if (value.is_null()) {
    fail_at(value.origin,
            path + " must be " + expected_text(row) + ", found null; leave the key out to get the default.");
  }
  wrong_value(value, row, path);
}

void require_choice(const std::string& text, const Node& value, const Row& row, const std::string& path) {
  if (row.choices.empty()) return;
  for (const std::string& choice : row.choices) {
    if (choice == text) return;
  }
  const auto nearest = did_you_mean(text, row.choices);
  fail_at(value.origin, path + " must be " + expected_text(row) + ", found " + shown(value) +
                            (nearest ? "; did you mean '" + *nearest + "'?" : "."));
}

void require_range(double number, const Node& value, const Row& row, const std::string& path) {
  const bool low = row.min && (row.min_open ? !(number > *row.min) : !(number >= *row.min));
  const bool high = row.max && (row.max_open ? !(number < *row.max) : !(number <= *row.max));
  if (low || high) wrong_value(value, row, path);
}

// "90s" for a field in seconds, "512MiB" for one in bytes; the answer is in the field's own unit.
std::optional<double> number_with_unit(const std::string& text, const std::string& unit) {
  struct Scale {
    const char* unit;
    bool is_time;
    double per_unit;
  };
  static constexpr Scale kScales[] = {{"seconds", true, 1},      {"s", true, 1},        {"milliseconds", true, 1e-3},
                                      {"ms", true, 1e-3},        {"minutes", true, 60}, {"hours", true, 3600},
                                      {"bytes", false, 1},       {"KiB", false, 1024},  {"MiB", false, 1048576},
                                      {"GiB", false, 1073741824}};
  for (const Scale& scale : kScales) {
    if (unit != scale.unit) continue;
    if (scale.is_time) {
      const std::optional<double> seconds = parse_seconds(text);
      return seconds ? std::optional<double>(*seconds / scale.per_unit) : std::nullopt;
    }
    const std::optional<uint64_t> bytes = parse_bytes(text);
    return bytes ? std::optional<double>(static_cast<double>(*bytes) / scale.per_unit) : std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

bool read_bool(const Node& value, const Row& row, const std::string& path) {
  require_scalar(value, row, path);
  const std::optional<bool> answer = value.as_bool();
  if (!answer) wrong_value(value, row, path);
  return *answer;
}

int64_t read_int(const Node& value, const Row& row, const std::string& path, int64_t lowest, int64_t highest) {
  require_scalar(value, row, path);
  std::optional<int64_t> number = value.as_int();
  if (!number && !row.unit.empty()) {
    const std::optional<double> real = number_with_unit(value.text(), row.unit);
    if (real && std::abs(*real) < 9e18 && *real == std::floor(*real)) number = static_cast<int64_t>(*real);
  }
  if (!number) wrong_value(value, row, path);
  if (*number < lowest || *number > highest) {
    fail_at(value.origin, path + " must be between " + std::to_string(lowest) + " and " + std::to_string(highest) +
                              ", found " + shown(value) + ".");
  }
  require_range(static_cast<double>(*number), value, row, path);
  require_choice(std::to_string(*number), value, row, path);
  return *number;
}

double read_number(const Node& value, const Row& row, const std::string& path) {
  require_scalar(value, row, path);
  std::optional<double> number = value.as_double();
  if (!number && !row.unit.empty()) number = number_with_unit(value.text(), row.unit);
  if (!number || std::isnan(*number)) wrong_value(value, row, path);
  require_range(*number, value, row, path);
  require_choice(format_double(*number), value, row, path);
  return *number;
}

std::string read_string(const Node& value, const Row& row, const std::string& path) {
  require_scalar(value, row, path);
  require_choice(value.text(), value, row, path);
  return value.text();
}

std::vector<Node> read_items(const Node& value, const Row& row, const std::string& path, bool of_strings) {
  if (value.is_list()) return value.items();
  const bool typed = value.origin.kind == OriginKind::Flag;
  if (!value.is_scalar() || !(typed || of_strings)) wrong_value(value, row, path);
  if (!typed || value.quoted()) return {value};
  std::vector<Node> items;
  for (const std::string& part : split(value.text(), ',')) {
    items.push_back(Node::scalar(trim(part)));
    items.back().origin = value.origin;
  }
  return items;
}

Node bool_node(bool value) { return Node::scalar(value ? "true" : "false"); }
Node int_node(int64_t value) { return Node::scalar(std::to_string(value)); }
Node number_node(double value) { return Node::scalar(format_double(value)); }

}  // namespace redline::config::detail
