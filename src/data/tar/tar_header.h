// One 512-byte tar header and the pax records that may precede it: pure parsing, shared by TarIndex, its tests and the
// fuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace redline::data::tar {

inline constexpr uint64_t kBlock = 512;

enum class HeaderKind : uint8_t { File, Other, LongName, Pax, End, Bad };

struct Header {
  HeaderKind kind = HeaderKind::Bad;
  std::string name;
  uint64_t size = 0;  // of the stored content; 0 for links, folders and devices
  std::string problem;
};

Header parse_header(std::span<const std::byte, kBlock> block);

// What extension headers say about the next member.
struct Pending {
  std::string name;
  std::optional<uint64_t> size;
  bool sparse = false;  // GNU sparse: stored bytes are not the content
};
// "LENGTH key=value\n" records; false when malformed. Unknown keys are skipped.
bool parse_pax(std::string_view text, Pending& pending);

}  // namespace redline::data::tar
