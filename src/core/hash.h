// Checksums and hashes: CRC32C for blocks on disk (SSE4.2 when there), SHA-256 for manifests and identity of weights
// (OpenSSL's), and XXH3 for the identity of plans and settings and for keys of caches (not for security).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
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
  std::array<uint64_t, 14> state_{};  // OpenSSL's SHA256_CTX
};
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

// XXH3: the same value on every machine. Where it is stored as the identity of something it is written as
// identity_text, whose prefix tells it from the hash that versions before used.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t hash64(std::string_view text, uint64_t seed = 0);
std::string hex64(uint64_t value);
std::string identity_text(uint64_t hash);                         // "xxh3:" and sixteen digits
std::optional<uint64_t> identity_of_text(std::string_view text);  // none for any other text

}  // namespace redline
