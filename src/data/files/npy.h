// The header of numpy's .npy files (format versions 1 to 3): what type of numbers, in which shape, from which byte on.
// Little-endian, in C order; anything else is refused in words. Objects are never unpickled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>

#include "data/array.h"
#include "data/codecs/refusal.h"

namespace redline::data {

struct NpyHeader {
  Dtype dtype = Dtype::F32;
  Shape shape;
  uint64_t data_begin = 0;
};

inline constexpr uint64_t kNpyHeadBytes = 4096;  // more than any header of a plain array takes

// `head` is the first bytes of a file of `file_bytes`.
std::variant<NpyHeader, codecs::Refusal> parse_npy(std::span<const std::byte> head, uint64_t file_bytes);

// The same file's head, for what we write.
std::string npy_head(Dtype dtype, const Shape& shape);

}  // namespace redline::data
