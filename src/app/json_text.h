// JSON for --json answers: the one way to turn it into text. Paths are bytes, not always UTF-8; what is not is
// replaced.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace redline::app {

template <class Json>
std::string json_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace redline::app
