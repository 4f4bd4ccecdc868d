// Metric lines are many (a long run has millions), and we write them in one fixed shape, so the reader takes that shape
// apart by hand and asks the JSON library only for lines that look different.
#include "measure/record_lines.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <unordered_map>

#include "core/error.h"
#include "core/strings.h"
#include "measure/strict_json.h"

namespace redline::measure {
namespace {

using Json = StrictJson;
constexpr size_t kLongestLine = size_t{1} << 20;

std::string json_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  return format_double(value);
}

std::string json_value(const FieldValue& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<int64_t>(&value)) return std::to_string(*whole);
  if (const auto* number = std::get_if<double>(&value)) {
    std::string text = json_number(*number);
    // Keep it a number with a fraction, so that reading gives a double again.
    if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
    return text;
  }
  return json_quote(std::get<std::string>(value));
}

// JSON's grammar is narrower than from_chars': no leading zeros, digits on both sides of the point.
bool is_json_number(std::string_view text) {
  const auto digits = [&] {
    const size_t count = std::min(text.find_first_not_of("0123456789"), text.size());
    text.remove_prefix(count);
    return count;
  };
  if (text.starts_with('-')) text.remove_prefix(1);
  const bool zero = text.starts_with('0');
  const size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return false;
  if (text.starts_with('.')) {
    text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  if (text.starts_with('e') || text.starts_with('E')) {
    text.remove_prefix(1);
    if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
    if (digits() == 0) return false;
  }
  return text.empty();
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  if (text == "nan") return std::nan("");
  if (text == "inf") return HUGE_VAL;
  if (text == "-inf") return -HUGE_VAL;
  return std::nullopt;
}

std::optional<Event> parse_event_line(std::string_view line) {
  const auto json =
      nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false);  // fields keep their order
  if (!json.is_object()) return std::nullopt;
  const auto time = json.find("time"), kind = json.find("kind"), fields = json.find("fields");
  if (time == json.end() || kind == json.end() || !time->is_string() || !kind->is_string()) return std::nullopt;
  Event event;
  event.time = time->get<std::string>();
  event.kind = kind->get<std::string>();
  if (fields == json.end()) return event;
  if (!fields->is_object()) return std::nullopt;
  for (const auto& [name, value] : fields->items()) {
    if (value.is_boolean()) {
      event.fields.emplace_back(name, value.get<bool>());
    } else if (value.is_number_integer() && !(value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX)) {
      event.fields.emplace_back(name, value.get<int64_t>());
    } else if (value.is_number()) {
      event.fields.emplace_back(name, value.get<double>());
    } else if (value.is_string()) {
      event.fields.emplace_back(name, value.get<std::string>());
    } else {
      return std::nullopt;
    }
  }
  return event;
}

void check_format(std::string_view line, const char* format, const std::string& name) {
  const Json json = Json::parse(line, nullptr, false);
  const bool ours = json.is_object() && json.value("format", Json()) == format;
  if (!ours) throw DataError("'" + printable(name) + "' does not begin with the line of a " + format + " file.");
  const Json version = json.value("version", Json());
  if (version != kRunRecordVersion) {
    throw DataError(
        fmt::format("'{}' has version {} of {}, this redline reads version {}; use the redline that wrote it.",
                    printable(name), printable(version.dump()), format, kRunRecordVersion));
  }
}

// Hands each whole line after the first to `take`, which says whether it could be read.
template <class Take>
LinesContent read_lines(std::string_view bytes, const std::string& name, const char* format, Take take) {
  LinesContent content;
  const std::string shown = printable(name);
  int64_t number = 0;
  while (true) {
    const auto begin = static_cast<size_t>(content.good_bytes);
    const size_t newline = bytes.find('\n', begin);
    if (newline == std::string_view::npos) {
      if (begin < bytes.size()) {
        content.warnings.push_back(fmt::format("{}: {} bytes of a torn line dropped", shown, bytes.size() - begin));
      }
      return content;
    }
    const std::string_view line = bytes.substr(begin, newline - begin);
    ++number;
    if (number == 1) {
      check_format(line, format, name);
    } else if (line.size() > kLongestLine || !take(line)) {
      content.warnings.push_back(fmt::format("{}: line {} can not be read and was left out", shown, number));
    }
    content.good_bytes = static_cast<int64_t>(newline) + 1;
  }
}

}  // namespace

std::string lines_header(const char* format) {
  return fmt::format("{{\"format\":\"{}\",\"version\":{}}}\n", format, kRunRecordVersion);
}

std::string event_line(const std::string& time, const std::string& kind, const FieldList& fields) {
  std::string line = "{\"time\":" + json_quote(time) + ",\"kind\":" + json_quote(kind) + ",\"fields\":{";
  bool first = true;
  for (const auto& [name, value] : fields) {
    if (!first) line += ',';
    first = false;
    line += json_quote(name) + ':' + json_value(value);
  }
  return line + "}}\n";
}

std::string metric_line(int64_t step, std::string_view name, double value) {
  return fmt::format("{{\"step\":{},\"name\":\"{}\",\"value\":{}}}\n", step, name, json_number(value));
}

std::optional<MetricPoint> parse_metric_line(std::string_view line) {
  const Json json = Json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto step = json.find("step"), name = json.find("name"), value = json.find("value");
  if (step == json.end() || name == json.end() || value == json.end()) return std::nullopt;
  const auto number = number_of(*value);
  if (!step->is_number_integer() || !name->is_string() || !number) return std::nullopt;
  if (step->is_number_unsigned() && step->get<uint64_t>() > uint64_t{INT64_MAX}) return std::nullopt;
  return MetricPoint{step->get<int64_t>(), name->get<std::string>(), *number};
}

std::optional<MetricPoint> parse_metric_line_fast(std::string_view line) {
  const auto skip = [&](std::string_view expected) {
    if (!line.starts_with(expected)) return false;
    line.remove_prefix(expected.size());
    return true;
  };
  MetricPoint point{};
  if (!skip("{\"step\":")) return std::nullopt;
  auto parsed = std::from_chars(line.data(), line.data() + line.size(), point.step);
  const auto step_size = static_cast<size_t>(parsed.ptr - line.data());
  if (parsed.ec != std::errc() || !is_json_number(line.substr(0, step_size))) return std::nullopt;
  line.remove_prefix(step_size);
  if (!skip(",\"name\":\"")) return std::nullopt;
  const size_t quote = line.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_/");
  if (quote == std::string_view::npos || line[quote] != '"') return std::nullopt;
  point.name = line.substr(0, quote);
  line.remove_prefix(quote);
  if (!skip("\",\"value\":") || !line.ends_with('}')) return std::nullopt;
  line.remove_suffix(1);
  if (!is_json_number(line)) return std::nullopt;
  parsed = std::from_chars(line.data(), line.data() + line.size(), point.value);
  if (parsed.ec != std::errc()) return std::nullopt;
  return point;
}

LinesContent read_events(std::string_view bytes, const std::string& name, std::vector<Event>& events) {
  return read_lines(bytes, name, "redline.events", [&](std::string_view line) {
    auto event = parse_event_line(line);
    if (event) events.push_back(std::move(*event));
    return event.has_value();
  });
}

LinesContent read_metrics(std::string_view bytes, const std::string& name, std::vector<MetricPoint>& metrics) {
  std::unordered_map<std::string, std::vector<size_t>> places;  // per name, of the points still valid
  std::vector<MetricPoint> points;
  std::vector<bool> replaced;
  LinesContent content = read_lines(bytes, name, "redline.metrics", [&](std::string_view line) {
    auto point = parse_metric_line_fast(line);
    if (!point) point = parse_metric_line(line);
    if (!point) return false;
    std::vector<size_t>& earlier = places[point->name];
    while (!earlier.empty() && points[earlier.back()].step >= point->step) {
      replaced[earlier.back()] = true;
      earlier.pop_back();
    }
    earlier.push_back(points.size());
    points.push_back(std::move(*point));
    replaced.push_back(false);
    return true;
  });
  for (size_t i = 0; i < points.size(); ++i) {
    if (!replaced[i]) metrics.push_back(std::move(points[i]));
  }
  return content;
}

}  // namespace redline::measure
