// Reads tests/fixtures/images for the tests of this folder.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "data/codecs/image.h"

namespace redline::data {

inline std::string image_fixture(const std::string& file) {
  std::ifstream in(std::string(REDLINE_FIXTURES) + "/images/" + file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline std::vector<nlohmann::json> image_cases(const std::string& kind) {
  std::vector<nlohmann::json> found;
  const auto all = nlohmann::json::parse(image_fixture("cases.json"));
  for (const auto& one : all["cases"])
    if (one["kind"] == kind) found.push_back(one);
  return found;
}

inline std::span<const std::byte> image_bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

inline Array decoded_fixture(const std::string& file) {
  return std::get<Array>(decode_image(image_bytes(image_fixture(file)), file, {}));
}

struct PixelDifference {
  double mean = 0.0;
  int max = 0;
};
inline PixelDifference difference(const Array& got, const std::string& want) {
  PixelDifference result{255.0, 255};
  if (got.num_bytes() != want.size()) return result;
  result = {};
  for (size_t i = 0; i < want.size(); ++i) {
    const int d = std::abs(int{got.as<uint8_t>()[i]} - int{static_cast<uint8_t>(want[i])});
    result.mean += d;
    result.max = std::max(result.max, d);
  }
  result.mean /= static_cast<double>(std::max<size_t>(want.size(), 1));
  return result;
}

}  // namespace redline::data
