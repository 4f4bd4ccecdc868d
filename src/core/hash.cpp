// The public hashes. CRC32C is ours (hash_crc32c.cpp), XXH3 and SHA-256 are xxHash's and OpenSSL's. OpenSSL's plain
// functions and not its EVP layer: they take no memory, read no configuration file and are three times as quick on a
// short text, and they pull a few small objects into the program instead of all of libcrypto.
#define OPENSSL_SUPPRESS_DEPRECATED
#define XXH_INLINE_ALL
#include "core/hash.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include <charconv>
#include <type_traits>

#include "core/detail/hash_kernels.h"

namespace redline {

namespace {

std::string hex_text(std::span<const uint8_t> bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (uint8_t byte : bytes) {
    text += digits[byte >> 4];
    text += digits[byte & 15];
  }
  return text;
}

// The state of a running digest lives in the object, so that the header needs none of OpenSSL's.
SHA256_CTX* context_of(std::array<uint64_t, 14>& state) {
  static_assert(sizeof(SHA256_CTX) <= sizeof(state) && alignof(SHA256_CTX) <= alignof(uint64_t));
  static_assert(std::is_trivially_copyable_v<SHA256_CTX>);
  return reinterpret_cast<SHA256_CTX*>(state.data());
}

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  static const bool fast = detail::has_sse42();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint32_t state = ~previous;
  return ~(fast ? detail::crc32c_sse42(data, bytes.size(), state) : detail::crc32c_table(data, bytes.size(), state));
}

Sha256::Sha256() { SHA256_Init(context_of(state_)); }

void Sha256::update(std::span<const std::byte> bytes) { SHA256_Update(context_of(state_), bytes.data(), bytes.size()); }

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<uint8_t, 32> Sha256::finish() {
  std::array<uint8_t, 32> digest{};
  SHA256_Final(digest.data(), context_of(state_));
  return digest;
}

std::string Sha256::finish_hex() { return hex_text(finish()); }

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish_hex();
}
std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(std::string_view text, uint64_t seed) {
  return hash64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

std::string hex64(uint64_t value) {
  std::array<uint8_t, 8> bytes{};
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (56 - 8 * i));
  return hex_text(bytes);
}

namespace {

constexpr std::string_view kIdentityPrefix = "xxh3:";

}  // namespace

std::string identity_text(uint64_t hash) { return std::string(kIdentityPrefix) + hex64(hash); }

std::optional<uint64_t> identity_of_text(std::string_view text) {
  if (!text.starts_with(kIdentityPrefix)) return std::nullopt;
  text.remove_prefix(kIdentityPrefix.size());
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace redline
