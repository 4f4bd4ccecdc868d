// Reads tests/fixtures/augment: pictures that Pillow made.
#pragma once

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "data/codecs/image_resize.h"

namespace redline::data {

class AugmentFixtures {
 public:
  AugmentFixtures() : pixels_(whole("cases.rgb")), all_(nlohmann::json::parse(whole("cases.json")).at("cases")) {}

  std::vector<nlohmann::json> of(const std::string& op) const {
    std::vector<nlohmann::json> found;
    for (const auto& one : all_)
      if (one.at("op") == op) found.push_back(one);
    return found;
  }
  Array picture(const nlohmann::json& one) const {
    Array image = Array::empty(Dtype::U8, {one.at("height"), one.at("width"), 3});
    std::memcpy(image.data(), pixels_.data() + one.at("offset").get<size_t>(), image.num_bytes());
    return image;
  }
  // What the case was made of.
  Array source(const nlohmann::json& one) const { return picture(of(one.value("of", "source")).at(0)); }
  static ResizeFilter filter(const nlohmann::json& one) {
    return one.at("filter") == "bicubic" ? ResizeFilter::Bicubic : ResizeFilter::Bilinear;
  }

 private:
  static std::string whole(const std::string& file) {
    std::ifstream in(std::string(REDLINE_FIXTURES) + "/augment/" + file, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string pixels_;
  nlohmann::json all_;
};

// The largest difference of two pictures of one shape; 256 when they have different ones.
inline int largest_difference(const Array& a, const Array& b) {
  if (a.shape() != b.shape()) return 256;
  int largest = 0;
  for (size_t i = 0; i < a.num_bytes(); ++i)
    largest = std::max(largest, std::abs(int{a.as<uint8_t>()[i]} - int{b.as<uint8_t>()[i]}));
  return largest;
}

}  // namespace redline::data
