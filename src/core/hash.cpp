// The public hashes: padding, streaming and the choice of inner loop at run time (hash_kernels.h).
#include "core/hash.h"

#include <algorithm>
#include <cstring>

#include "core/hash_kernels.h"

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

void sha256_blocks(uint32_t state[8], const uint8_t* data, size_t blocks) {
  static const bool fast = detail::has_sha_ni();
  fast ? detail::sha256_blocks_sha_ni(state, data, blocks) : detail::sha256_blocks_plain(state, data, blocks);
}

// One multiplication to 128 bits, folded: each half carries bits of both factors.
uint64_t fold_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide{a} * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t load_word(const std::byte* data, size_t size) {
  uint64_t word = 0;
  if (size > 0) std::memcpy(&word, data, size);
  return word;
}

// Digits of pi (hexadecimal), forced odd so that no factor is even.
constexpr uint64_t kPi[4] = {0x243F6A8885A308D3, 0x13198A2E03707345, 0xA4093822299F31D1, 0x082EFA98EC4E6C89};

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  static const bool fast = detail::has_sse42();
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  const uint32_t state = ~previous;
  return ~(fast ? detail::crc32c_sse42(data, bytes.size(), state) : detail::crc32c_table(data, bytes.size(), state));
}

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::update(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t size = bytes.size();
  total_ += size;
  if (pending_size_ > 0) {
    const size_t taken = std::min(size, pending_.size() - pending_size_);
    std::copy_n(data, taken, pending_.begin() + static_cast<ptrdiff_t>(pending_size_));
    pending_size_ += taken;
    data += taken;
    size -= taken;
    if (pending_size_ < pending_.size()) return;
    sha256_blocks(state_.data(), pending_.data(), 1);
    pending_size_ = 0;
  }
  sha256_blocks(state_.data(), data, size / 64);
  pending_size_ = size % 64;
  std::copy_n(data + (size - pending_size_), pending_size_, pending_.begin());
}

void Sha256::update(std::string_view text) { update(std::as_bytes(std::span(text.data(), text.size()))); }

std::array<uint8_t, 32> Sha256::finish() {
  const uint64_t bits = total_ * 8;
  std::array<std::byte, 72> padding{};
  padding[0] = std::byte{0x80};
  const size_t zeros = (pending_size_ < 56 ? 56 : 120) - pending_size_;
  for (size_t i = 0; i < 8; ++i) padding[zeros + i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  update(std::span(padding).first(zeros + 8));
  std::array<uint8_t, 32> digest{};
  for (size_t i = 0; i < 32; ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
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
  const std::byte* data = bytes.data();
  size_t size = bytes.size();
  uint64_t a = seed ^ kPi[0], b = fold_product(seed ^ kPi[1], kPi[2]);
  for (; size > 16; size -= 16, data += 16) {
    a = fold_product(load_word(data, 8) ^ kPi[1], load_word(data + 8, 8) ^ a);
    b = fold_product(b ^ a, kPi[3]) + kPi[0];
  }
  const uint64_t first = load_word(data, std::min<size_t>(size, 8));
  const uint64_t second = size > 8 ? load_word(data + 8, size - 8) : 0;
  a = fold_product(first ^ kPi[2] ^ b, second ^ a ^ bytes.size());
  return fold_product(a ^ kPi[3] ^ bytes.size(), b ^ a ^ kPi[1]);
}

uint64_t hash64(std::string_view text, uint64_t seed) {
  return hash64(std::as_bytes(std::span(text.data(), text.size())), seed);
}

std::string hex64(uint64_t value) {
  std::array<uint8_t, 8> bytes{};
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (56 - 8 * i));
  return hex_text(bytes);
}

}  // namespace redline
