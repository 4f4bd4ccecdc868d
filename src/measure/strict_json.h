// nlohmann's JSON for files that may be damaged or forged. It turns 1e24 into an integer without looking whether that
// fits, which is undefined; here a whole number in the file is a whole number or a Json::type_error.
#pragma once

#include <nlohmann/json.hpp>

#include <type_traits>

namespace redline::measure {

template <class T, class Enabled = void>
struct StrictSerializer : nlohmann::adl_serializer<T, Enabled> {};

template <class T>
struct StrictSerializer<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  template <class Json>
  static void from_json(const Json& json, T& value) {
    if (!json.is_number_integer())
      throw Json::type_error::create(302, std::string("type must be whole number, but is ") + json.type_name(), &json);
    nlohmann::adl_serializer<T>::from_json(json, value);
  }
  template <class Json>
  static void to_json(Json& json, T value) {
    nlohmann::adl_serializer<T>::to_json(json, value);
  }
};

template <template <class, class, class...> class Map>
using StrictJsonOf = nlohmann::basic_json<Map, std::vector, std::string, bool, int64_t, uint64_t, double,
                                          std::allocator, StrictSerializer>;
using StrictJson = StrictJsonOf<std::map>;
using StrictOrderedJson = StrictJsonOf<nlohmann::ordered_map>;

}  // namespace redline::measure
