// Parser and writer of the safetensors header. All arithmetic on numbers from the file is checked; nothing is allocated
// by a size that the file merely claims.
#include "core/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <unordered_set>

#include "core/check.h"
#include "core/error.h"
#include "core/safetensors_header_text.h"
#include "core/strings.h"

namespace redline {
namespace {

struct TypeRow {
  StoredType type;
  std::string_view name;
  uint64_t bytes;
};
constexpr std::array<TypeRow, 17> kTypeRows = {{{StoredType::Bool, "BOOL", 1},
                                                {StoredType::U8, "U8", 1},
                                                {StoredType::I8, "I8", 1},
                                                {StoredType::F8E4M3, "F8_E4M3", 1},
                                                {StoredType::F8E5M2, "F8_E5M2", 1},
                                                {StoredType::F8E8M0, "F8_E8M0", 1},
                                                {StoredType::I16, "I16", 2},
                                                {StoredType::U16, "U16", 2},
                                                {StoredType::F16, "F16", 2},
                                                {StoredType::BF16, "BF16", 2},
                                                {StoredType::I32, "I32", 4},
                                                {StoredType::U32, "U32", 4},
                                                {StoredType::F32, "F32", 4},
                                                {StoredType::I64, "I64", 8},
                                                {StoredType::U64, "U64", 8},
                                                {StoredType::F64, "F64", 8},
                                                {StoredType::C64, "C64", 8}}};

// Bytes that type and shape ask for. Zero dimensions do not excuse a product of the others that wraps: such shapes have
// been used to slip past bounds checks in other readers.
uint64_t checked_tensor_bytes(const StoredEntry& entry, const std::string& file_name) {
  uint64_t bytes = stored_type_bytes(entry.type);
  bool empty = false;
  for (int64_t dim : entry.shape) {
    if (dim == 0) {
      empty = true;
    } else if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes) ||
               bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      refuse_header(file_name, "tensor '" + shortened_name(entry.name) + "': the product of its shape wraps");
    }
  }
  return empty ? 0 : bytes;
}

void check_header_names(const std::vector<StoredEntry>& entries, const std::string& file_name) {
  std::unordered_set<std::string_view> names;
  names.reserve(entries.size());
  for (const StoredEntry& entry : entries) {
    if (!names.insert(entry.name).second)
      refuse_header(file_name, "duplicate tensor '" + shortened_name(entry.name) + "'");
  }
}

// Every byte of the data part belongs to exactly one tensor: no overlap, no hole, nothing after the last one (polyglot
// files).
void check_header_cover(const std::vector<StoredEntry>& entries, uint64_t data_bytes, const std::string& file_name) {
  std::vector<const StoredEntry*> order;
  order.reserve(entries.size());
  for (const StoredEntry& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const StoredEntry* a, const StoredEntry* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->end < b->end;
  });
  uint64_t reached = 0;
  for (const StoredEntry* entry : order) {
    const std::string who = "tensor '" + shortened_name(entry->name) + "'";
    if (entry->begin < reached) refuse_header(file_name, who + " overlaps the one before it");
    if (entry->begin > reached) {
      refuse_header(file_name, "a hole of " + std::to_string(entry->begin - reached) + " bytes before " + who);
    }
    reached = entry->end;
  }
  if (reached != data_bytes) {
    refuse_header(file_name, std::to_string(data_bytes - reached) + " trailing bytes that belong to no tensor");
  }
}

void append_json_text(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\', out += c;
    } else if (byte < 0x20) {
      out += "\\u00", out += kHex[byte >> 4], out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace

std::string shortened_name(std::string_view name) {
  constexpr size_t kShown = 80;
  return name.size() <= kShown ? printable(name) : printable(name.substr(0, kShown)) + "…";
}

void refuse_header(const std::string& file_name, const std::string& what) {
  throw CheckpointError(printable(file_name) + ": safetensors header refused: " + what +
                        ". The file is damaged or was not written as safetensors; use another copy");
}

std::optional<StoredType> find_stored_type(std::string_view name) {
  for (const TypeRow& row : kTypeRows) {
    if (row.name == name) return row.type;
  }
  return std::nullopt;
}

std::string_view stored_type_name(StoredType type) { return kTypeRows[static_cast<size_t>(type)].name; }
uint64_t stored_type_bytes(StoredType type) { return kTypeRows[static_cast<size_t>(type)].bytes; }

uint64_t parse_header_length(std::span<const uint8_t, 8> bytes, uint64_t file_bytes, const std::string& file_name) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = (length << 8) | bytes[i];
  if (length > kMaxHeaderBytes) {
    refuse_header(file_name, "its length says " + std::to_string(length) + " bytes, the limit is " +
                                 std::to_string(kMaxHeaderBytes));
  }
  if (file_bytes < 8 || length > file_bytes - 8) {
    refuse_header(file_name, "its length says " + std::to_string(length) + " bytes, the file has only " +
                                 std::to_string(file_bytes));
  }
  return length;
}

StoredHeader parse_stored_header(std::string_view json, uint64_t data_bytes, const std::string& file_name) {
  if (json.size() > kMaxHeaderBytes)
    refuse_header(file_name, "it is over " + std::to_string(kMaxHeaderBytes) + " bytes");
  StoredHeader header = parse_header_text(json, file_name);
  check_header_names(header.entries, file_name);
  for (const StoredEntry& entry : header.entries) {
    const std::string who = "tensor '" + shortened_name(entry.name) + "'";
    const uint64_t bytes = checked_tensor_bytes(entry, file_name);
    if (entry.end < entry.begin) refuse_header(file_name, who + ": data_offsets end before they begin");
    if (entry.end > data_bytes) {
      refuse_header(file_name, who + " ends at byte " + std::to_string(entry.end) + ", past the " +
                                   std::to_string(data_bytes) + " bytes of data");
    }
    if (entry.bytes() != bytes) {
      refuse_header(file_name, who + ": type and shape need " + std::to_string(bytes) + " bytes, data_offsets give " +
                                   std::to_string(entry.bytes()));
    }
  }
  check_header_cover(header.entries, data_bytes, file_name);
  return header;
}

uint64_t place_entries(std::vector<StoredEntry>& entries) {
  REDLINE_CHECK(entries.size() <= kMaxHeaderEntries, "more tensors than a safetensors file may hold");
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return stored_type_bytes(entries[a].type) > stored_type_bytes(entries[b].type);
  });
  std::unordered_set<std::string_view> names;
  uint64_t reached = 0;
  for (size_t i : order) {
    StoredEntry& entry = entries[i];
    REDLINE_CHECK(entry.name != "__metadata__" && names.insert(entry.name).second,
                  "tensor names are unique and not reserved");
    uint64_t bytes = stored_type_bytes(entry.type);
    for (int64_t dim : entry.shape) bytes *= static_cast<uint64_t>(dim);
    entry.begin = reached;
    entry.end = reached += bytes;
  }
  return reached;
}

std::string header_bytes(std::span<const StoredEntry> entries, const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  const char* separator = "";
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      json += separator, append_json_text(json, key), json += ':', append_json_text(json, value);
      separator = ",";
    }
    json += '}';
  }
  for (const StoredEntry& entry : entries) {
    json += separator, append_json_text(json, entry.name);
    json += ":{\"dtype\":\"", json += stored_type_name(entry.type), json += "\",\"shape\":[";
    for (size_t i = 0; i < entry.shape.size(); ++i) json += i ? "," : "", json += std::to_string(entry.shape[i]);
    json += "],\"data_offsets\":[", json += std::to_string(entry.begin), json += ',', json += std::to_string(entry.end);
    json += "]}";
    separator = ",";
  }
  json += '}';
  json.resize((json.size() + 7) / 8 * 8, ' ');
  REDLINE_CHECK(json.size() <= kMaxHeaderBytes, "the names of the tensors are too long for a safetensors header");
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>((json.size() >> (8 * i)) & 0xFF);
  return out + json;
}

}  // namespace redline
