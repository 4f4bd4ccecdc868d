#include "data/files/npy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "core/strings.h"

namespace redline::data {

namespace {

using codecs::Refusal;

constexpr std::string_view kNpyMagic = "\x93NUMPY";

struct NpyType {
  std::string_view descr;
  Dtype dtype;
};
constexpr std::array<NpyType, 6> kNpyTypes{{{"<f4", Dtype::F32},
                                            {"<f8", Dtype::F64},
                                            {"<i4", Dtype::I32},
                                            {"<i8", Dtype::I64},
                                            {"|u1", Dtype::U8},
                                            {"|b1", Dtype::Bool}}};

// What follows 'key': in the header's dictionary.
std::optional<std::string_view> value_of(std::string_view dictionary, std::string_view key) {
  const size_t at = dictionary.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = dictionary.substr(at + key.size());
  const size_t begin = rest.find_first_not_of(" :");
  if (begin == std::string_view::npos) return std::nullopt;
  return rest.substr(begin);
}

std::optional<Shape> shape_of(std::string_view text) {
  if (text.empty() || text[0] != '(') return std::nullopt;
  const size_t end = text.find(')');
  if (end == std::string_view::npos) return std::nullopt;
  Shape shape;
  for (const std::string& part : split(text.substr(1, end - 1), ',')) {
    const std::string number = trim(part);
    if (number.empty()) continue;
    const auto size = parse_int(number);
    if (!size || *size < 0 || shape.size() == 8) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

}  // namespace

std::variant<NpyHeader, Refusal> parse_npy(std::span<const std::byte> head, uint64_t file_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(kNpyMagic) || text.size() < 12) return Refusal{"it is no .npy file"};
  const auto byte = [&](size_t at) { return static_cast<uint64_t>(static_cast<unsigned char>(text[at])); };
  const uint64_t version = byte(6);
  if (version < 1 || version > 3)
    return Refusal{"its .npy format version is " + std::to_string(version) + ", not 1 to 3"};
  const uint64_t prefix = version == 1 ? 10 : 12;
  const uint64_t length =
      version == 1 ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (prefix + length > text.size())
    return Refusal{"its .npy header is cut off or longer than " + std::to_string(text.size()) + " bytes"};
  const std::string_view dictionary = text.substr(prefix, length);
  const auto descr = value_of(dictionary, "'descr'"), order = value_of(dictionary, "'fortran_order'"),
             shape_text = value_of(dictionary, "'shape'");
  const auto shape = shape_text ? shape_of(*shape_text) : std::nullopt;
  if (!descr || !order || !shape) return Refusal{"its .npy header is damaged"};
  if (order->starts_with("True")) return Refusal{"it is in Fortran order; save numpy.ascontiguousarray(x) instead"};
  NpyHeader header;
  const auto type = std::find_if(kNpyTypes.begin(), kNpyTypes.end(),
                                 [&](const NpyType& one) { return descr->substr(1).starts_with(one.descr); });
  if (type == kNpyTypes.end())
    return Refusal{"its numbers are of type " + printable(descr->substr(0, 12)) +
                   "; float32, float64, int32, int64, uint8 and bool are read"};
  header.dtype = type->dtype;
  header.shape = *shape;
  header.data_begin = prefix + length;
  uint64_t room = (file_bytes - std::min(file_bytes, header.data_begin)) / dtype_size(header.dtype);
  for (const int64_t size : header.shape) {
    if (size == 0) return header;
    room /= static_cast<uint64_t>(size);
  }
  if (room == 0) return Refusal{"it is truncated: its header promises more numbers than the file holds"};
  return header;
}

std::string npy_head(Dtype dtype, const Shape& shape) {
  const auto type =
      std::find_if(kNpyTypes.begin(), kNpyTypes.end(), [&](const NpyType& one) { return one.dtype == dtype; });
  std::string text = "{'descr': '" + std::string(type->descr) + "', 'fortran_order': False, 'shape': (";
  for (const int64_t size : shape) text += std::to_string(size) + ", ";
  if (shape.size() > 1) text.resize(text.size() - 2);
  text += "), }";
  text.resize((10 + text.size() + 1 + 63) / 64 * 64 - 11, ' ');
  text += '\n';
  std::string head(kNpyMagic);
  head += '\x01';
  head += '\0';
  head += static_cast<char>(text.size() & 0xFF);
  head += static_cast<char>(text.size() >> 8);
  return head + text;
}

}  // namespace redline::data
