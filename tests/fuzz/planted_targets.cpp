// A parser of a dozen lines that stands for all the others: compiled with REDLINE_PLANTED_BUG it trusts a length byte,
// and the harness must find that within its usual number of files. Without the switch it must pass.
#include <cstring>
#include <memory>

#include "target.h"

namespace redline::fuzz {

namespace {

// "RLPL", a length byte, that many bytes, a checksum byte.
bool parse_planted(std::span<const std::byte> bytes) {
  if (bytes.size() < 6 || std::memcmp(bytes.data(), "RLPL", 4) != 0) return false;
  const auto length = static_cast<size_t>(bytes[4]);
#if !defined(REDLINE_PLANTED_BUG)
  if (length > bytes.size() - 6) return false;
#endif
  const auto copy = std::make_unique<std::byte[]>(length + 1);
  std::memcpy(copy.get(), bytes.data() + 5, length);
  unsigned sum = 0;
  for (size_t i = 0; i < length; ++i) sum += static_cast<unsigned>(copy[i]);
  return sum > 0;
}

std::vector<std::string> planted_seeds() { return {std::string("RLPL\x05helloX", 11)}; }

}  // namespace

std::vector<Target> planted_targets() { return {{"planted", parse_planted, planted_seeds, {}}}; }

}  // namespace redline::fuzz
