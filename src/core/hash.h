// Checksums and hashes: CRC32C for blocks on disk (SSE4.2 when there), SHA-256 for manifests and identity of weights
// (SHA instructions when there), and a fast 64-bit hash for keys of plans and caches (not for security).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace redline {

// crc32c(b, crc32c(a)) is the checksum of a followed by b.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

class Sha256 {
 public:
  Sha256();
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);
  std::array<uint8_t, 32> finish();
  std::string finish_hex();

 private:
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> pending_{};
  size_t pending_size_ = 0;
  uint64_t total_ = 0;
};
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

// The same value on every machine and in every version: it is stored in checkpoints and cache keys.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view text, uint64_t seed = 0);
std::string hex64(uint64_t value);

}  // namespace redline
