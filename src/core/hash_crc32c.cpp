// CRC32C (polynomial 0x1EDC6F41, reflected 0x82F63B78; RFC 3720 appendix B.4).
// The crc32 instruction has a latency of three cycles and a throughput of one, so three stretches run side by side and
// are joined by shifting a remainder over n zero bytes, which is a multiplication by x^(8n) modulo the polynomial.
#include <array>
#include <cstring>

#include "core/detail/hash_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace redline::detail {

namespace {

constexpr uint32_t kCastagnoli = 0x82F63B78;

// Eight tables: table k advances a byte over k further bytes, so that eight bytes take one step ("slicing by 8").
constexpr std::array<std::array<uint32_t, 256>, 8> make_crc_tables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ kCastagnoli : crc >> 1;
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr auto kCrcTables = make_crc_tables();

}  // namespace

uint32_t crc32c_table(const uint8_t* data, size_t size, uint32_t state) {
  for (; size >= 8; size -= 8, data += 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    word ^= state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= kCrcTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; --size) state = (state >> 8) ^ kCrcTables[0][(state ^ *data++) & 0xff];
  return state;
}

#if defined(__x86_64__)

namespace {

// a * b modulo the polynomial; bit 31 is x^0.
constexpr uint32_t crc_multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kCastagnoli : b >> 1;
  }
  return product;
}

constexpr uint32_t crc_power_of_x(uint64_t exponent) {
  uint32_t result = 1u << 31, square = 1u << 30;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = crc_multiply(result, square);
    square = crc_multiply(square, square);
  }
  return result;
}

// Shifts a state over `Bytes` zero bytes, one lookup per byte of the state.
template <size_t Bytes>
struct CrcShift {
  std::array<std::array<uint32_t, 256>, 4> table{};
  CrcShift() {
    const uint32_t power = crc_power_of_x(8 * Bytes);
    for (uint32_t k = 0; k < 4; ++k)
      for (uint32_t byte = 0; byte < 256; ++byte) table[k][byte] = crc_multiply(byte << (8 * k), power);
  }
  uint32_t operator()(uint64_t state) const {
    return table[0][state & 0xff] ^ table[1][(state >> 8) & 0xff] ^ table[2][(state >> 16) & 0xff] ^
           table[3][(state >> 24) & 0xff];
  }
};

__attribute__((target("sse4.2"))) inline uint64_t crc_word(uint64_t state, const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, 8);
  return _mm_crc32_u64(state, word);
}

template <size_t Bytes>
__attribute__((target("sse4.2"))) uint64_t crc_three_ways(const uint8_t*& data, size_t& size, uint64_t state) {
  static const CrcShift<Bytes> shift;
  for (; size >= 3 * Bytes; size -= 3 * Bytes, data += 3 * Bytes) {
    uint64_t second = 0, third = 0;
    for (size_t i = 0; i < Bytes; i += 8) {
      state = crc_word(state, data + i);
      second = crc_word(second, data + Bytes + i);
      third = crc_word(third, data + 2 * Bytes + i);
    }
    state = shift(shift(state) ^ second) ^ third;
  }
  return state;
}

}  // namespace

bool has_sse42() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const uint8_t* data, size_t size, uint32_t state) {
  uint64_t crc = crc_three_ways<4096>(data, size, state);
  crc = crc_three_ways<256>(data, size, crc);
  for (; size >= 8; size -= 8, data += 8) crc = crc_word(crc, data);
  auto narrow = static_cast<uint32_t>(crc);
  for (; size > 0; --size) narrow = _mm_crc32_u8(narrow, *data++);
  return narrow;
}

#else

bool has_sse42() { return false; }
uint32_t crc32c_sse42(const uint8_t* data, size_t size, uint32_t state) { return crc32c_table(data, size, state); }

#endif

}  // namespace redline::detail
