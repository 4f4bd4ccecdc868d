// The safetensors header without torch: parsing with every check, and writing. Apart from the reader so that the
// hostile-header campaign can run it under AddressSanitizer and UBSan, which LibTorch's own binaries do not survive.
// The grammar is fixed (two levels of objects, arrays of integers), so the parser has no recursion and no depth to
// exhaust.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline {

enum class StoredType : uint8_t {
  Bool,
  U8,
  I8,
  F8E4M3,
  F8E5M2,
  F8E8M0,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  I64,
  U64,
  F64,
  C64
};
std::string_view stored_type_name(StoredType type);  // "F32"
uint64_t stored_type_bytes(StoredType type);

inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the reference implementation's limit
inline constexpr size_t kMaxHeaderEntries = 99'999;       // tensors, and separately entries of __metadata__
inline constexpr size_t kMaxTensorRank = 16;

struct StoredEntry {
  std::string name;
  StoredType type = StoredType::F32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // within the data part

  uint64_t bytes() const { return end - begin; }
};

struct StoredHeader {
  std::vector<StoredEntry> entries;  // in the order of the header
  std::map<std::string, std::string> metadata;
};

// The eight length bytes at the start of a file. Throws CheckpointError when the length is over the limit or past the
// end of the file.
uint64_t parse_header_length(std::span<const uint8_t, 8> bytes, uint64_t file_bytes, const std::string& file_name);

// Throws CheckpointError naming the file, the tensor and what is wrong: bad JSON, duplicates, unknown or sub-byte
// types, shapes and lengths that wrap, offsets that disagree with the shape, overlap, leave holes or trailing bytes,
// run past the end.
StoredHeader parse_stored_header(std::string_view json, uint64_t data_bytes, const std::string& file_name);

// Sets begin and end: larger element types first (readers that view the bytes in place need alignment), else in the
// given order. Returns the size of the data part. Names must be unique, shapes sane: they come from our own tensors.
uint64_t place_entries(std::vector<StoredEntry>& entries);
// The length bytes and the JSON, padded with spaces to a multiple of 8.
std::string header_bytes(std::span<const StoredEntry> entries, const std::map<std::string, std::string>& metadata);

}  // namespace redline
