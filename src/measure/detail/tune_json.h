// Shared by the JSON of ledger, certificate and tune card; inside measure only.
#pragma once

#include <optional>
#include <string>

#include "measure/certificate.h"
#include "measure/ledger.h"
#include "measure/statistics.h"
#include "measure/strict_json.h"

namespace redline::measure::detail {

using OrderedJson = StrictOrderedJson;

OrderedJson interval_json(const Interval& interval);
Interval interval_of(const OrderedJson& json);
OrderedJson ratio_json(const std::optional<RatioEstimate>& estimate);  // null when absent
std::optional<RatioEstimate> ratio_of(const OrderedJson& json);
OrderedJson number_json(std::optional<double> value);  // null when absent; not-a-number and infinities as strings
std::optional<double> number_from(const OrderedJson& json);

OrderedJson ledger_json(const Ledger& ledger);
Ledger ledger_of(const OrderedJson& json);
OrderedJson certificate_json(const Certificate& certificate);
Certificate certificate_of(const OrderedJson& json);

std::string dump(const OrderedJson& json);
// Parses, checks "format" and "version"; throws DataError for anything else.
OrderedJson parse_document(const std::string& text, const std::string& name, const char* format, int version);
// Calls `read` and turns the JSON library's errors (missing key, wrong type) into DataError.
template <class Read>
auto read_document(const std::string& text, const std::string& name, const char* format, int version, Read read);
[[noreturn]] void throw_bad_document(const std::string& name, const char* format, const std::string& why);

template <class Read>
auto read_document(const std::string& text, const std::string& name, const char* format, int version, Read read) {
  const OrderedJson json = parse_document(text, name, format, version);
  try {
    return read(json);
  } catch (const nlohmann::json::exception& error) {
    throw_bad_document(name, format, error.what());
  }
}

}  // namespace redline::measure::detail
