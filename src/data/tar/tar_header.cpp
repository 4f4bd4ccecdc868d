// POSIX ustar and pax (IEEE 1003.1, pax interchange format), and GNU's base-256 numbers and long names.
#include "data/tar/tar_header.h"

#include <algorithm>
#include <cstring>

#include "core/strings.h"

namespace redline::data::tar {

namespace {

constexpr size_t kSizeAt = 124, kChecksumAt = 148, kTypeAt = 156, kMagicAt = 257, kPrefixAt = 345;

std::string_view field(std::span<const std::byte, kBlock> block, size_t at, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(block.data()) + at, size);
  return text.substr(0, text.find('\0'));
}

// Octal text, or base 256 when the first bit is set. nullopt when neither, or when it does not fit 63 bits.
std::optional<uint64_t> number(std::span<const std::byte, kBlock> block, size_t at, size_t size) {
  const auto* p = reinterpret_cast<const uint8_t*>(block.data()) + at;
  uint64_t value = 0;
  if ((p[0] & 0x80) != 0) {
    if ((p[0] & 0x40) != 0) return std::nullopt;  // negative
    for (size_t i = 0; i < size; ++i) {
      if (value >> 55 != 0) return std::nullopt;
      value = value << 8 | (i == 0 ? p[0] & 0x3Fu : p[i]);
    }
    return value;
  }
  size_t i = 0;
  while (i < size && p[i] == ' ') ++i;
  for (; i < size && p[i] >= '0' && p[i] <= '7'; ++i) {
    if (value >> 60 != 0) return std::nullopt;
    value = value << 3 | (p[i] - '0');
  }
  for (; i < size; ++i)
    if (p[i] != ' ' && p[i] != '\0') return std::nullopt;
  return value;
}

bool checksum_fits(std::span<const std::byte, kBlock> block) {
  const auto stored = number(block, kChecksumAt, 8);
  if (!stored) return false;
  uint64_t sum = 0;
  int64_t signed_sum = 0;  // some old writers summed signed characters
  for (size_t i = 0; i < kBlock; ++i) {
    const bool blank = i >= kChecksumAt && i < kChecksumAt + 8;
    const auto byte = blank ? uint8_t{' '} : static_cast<uint8_t>(block[i]);
    sum += byte;
    signed_sum += static_cast<int8_t>(byte);
  }
  return *stored == sum || static_cast<int64_t>(*stored) == signed_sum;
}

Header bad_header(std::string problem) {
  Header header;
  header.problem = std::move(problem);
  return header;
}

}  // namespace

Header parse_header(std::span<const std::byte, kBlock> block) {
  Header header;
  if (std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; })) {
    header.kind = HeaderKind::End;
    return header;
  }
  if (!checksum_fits(block)) return bad_header("a header whose checksum does not fit");
  const auto size = number(block, kSizeAt, 12);
  if (!size) return bad_header("a header whose size is not a number");
  header.name = field(block, 0, 100);
  // Only POSIX ustar has a prefix; GNU's old format keeps times there.
  if (std::memcmp(block.data() + kMagicAt, "ustar\0", 6) == 0) {
    const std::string_view prefix = field(block, kPrefixAt, 155);
    if (!prefix.empty()) header.name = std::string(prefix) + "/" + header.name;
  }
  const char type = static_cast<char>(block[kTypeAt]);
  header.size = *size;
  switch (type) {
    case '0':
    case '\0':
    case '7':
      // Old tars mark folders by a trailing slash only.
      header.kind =
          !header.name.empty() && header.name.back() == '/' && type == '\0' ? HeaderKind::Other : HeaderKind::File;
      break;
    case 'L':
      header.kind = HeaderKind::LongName;
      break;
    case 'x':
    case 'X':
      header.kind = HeaderKind::Pax;
      break;
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
      header.kind = HeaderKind::Other;
      header.size = 0;  // links, devices and folders store nothing, whatever the field says
      break;
    default:  // long link names, global pax headers, sparse files, vendors' types
      header.kind = HeaderKind::Other;
  }
  return header;
}

bool parse_pax(std::string_view text, Pending& pending) {
  while (!text.empty() && text.front() != '\0') {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || space > 10) return false;
    const auto length = parse_int(text.substr(0, space));
    if (!length || *length <= static_cast<int64_t>(space) + 1 || static_cast<uint64_t>(*length) > text.size())
      return false;
    std::string_view record = text.substr(space + 1, static_cast<size_t>(*length) - space - 1);
    text.remove_prefix(static_cast<size_t>(*length));
    if (record.back() != '\n') return false;
    record.remove_suffix(1);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos) return false;
    const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      pending.name = value;
    } else if (key == "size") {
      const auto size = parse_int(value);
      if (!size || *size < 0) return false;
      pending.size = static_cast<uint64_t>(*size);
    } else if (starts_with(key, "GNU.sparse.")) {
      pending.sparse = true;
    }
  }
  return true;
}

}  // namespace redline::data::tar
