// Small parts of the tuner's documents. Every document begins with its format and version.
#include "measure/detail/tune_json.h"

#include <cmath>

#include "core/error.h"
#include "core/strings.h"

namespace redline::measure::detail {

OrderedJson number_json(std::optional<double> value) {
  if (!value) return nullptr;
  if (std::isnan(*value)) return "nan";
  if (std::isinf(*value)) return *value > 0 ? "inf" : "-inf";
  return *value;
}

std::optional<double> number_from(const OrderedJson& json) {
  if (json.is_null()) return std::nullopt;
  if (json.is_string()) {
    const auto value = parse_double(json.get<std::string>());
    return value ? *value : std::nan("");
  }
  return json.get<double>();
}

OrderedJson interval_json(const Interval& interval) {
  return {{"low", number_json(interval.low)}, {"high", number_json(interval.high)}};
}

Interval interval_of(const OrderedJson& json) {
  return {number_from(json.at("low")).value_or(0), number_from(json.at("high")).value_or(0)};
}

OrderedJson ratio_json(const std::optional<RatioEstimate>& estimate) {
  if (!estimate) return nullptr;
  return {{"ratio", number_json(estimate->ratio)},
          {"interval", interval_json(estimate->interval)},
          {"blocks", estimate->blocks}};
}

std::optional<RatioEstimate> ratio_of(const OrderedJson& json) {
  if (json.is_null()) return std::nullopt;
  return RatioEstimate{number_from(json.at("ratio")).value_or(1), interval_of(json.at("interval")),
                       json.at("blocks").get<int>()};
}

std::string dump(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

void throw_bad_document(const std::string& name, const char* format, const std::string& why) {
  throw DataError("'" + printable(name) + "' is no " + format + " document: " + printable(why) + ".");
}

OrderedJson parse_document(const std::string& text, const std::string& name, const char* format, int version) {
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.value("format", OrderedJson()) != format)
    throw_bad_document(name, format, "its format line is missing");
  const OrderedJson found = json.value("version", OrderedJson());
  if (found != version) {
    throw DataError("'" + printable(name) + "' has version " + printable(found.dump()) + " of " + format +
                    ", this redline reads version " + std::to_string(version) + "; make it again with this redline.");
  }
  return json;
}

}  // namespace redline::measure::detail
