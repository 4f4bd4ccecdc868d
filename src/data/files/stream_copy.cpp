#include "data/files/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX__)
#include <immintrin.h>
#endif

namespace redline::data {

namespace {

#if defined(__AVX__)
constexpr size_t kLine = 64;

size_t bytes_to_line(const std::byte* at) { return -reinterpret_cast<uintptr_t>(at) % kLine; }

void stream_line(std::byte* out, __m256i low, __m256i high) {
  _mm256_stream_si256(reinterpret_cast<__m256i*>(out), low);
  _mm256_stream_si256(reinterpret_cast<__m256i*>(out + kLine / 2), high);
}

void stream_copy(std::byte* out, const std::byte* in, size_t bytes) {
  size_t at = std::min(bytes, bytes_to_line(out));
  std::memcpy(out, in, at);
  for (; at + kLine <= bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m256i*>(in + at);
    stream_line(out + at, _mm256_loadu_si256(from), _mm256_loadu_si256(from + 1));
  }
  std::memcpy(out + at, in + at, bytes - at);
}

void stream_zeros(std::byte* out, size_t bytes) {
  size_t at = std::min(bytes, bytes_to_line(out));
  std::memset(out, 0, at);
  const __m256i zero = _mm256_setzero_si256();
  for (; at + kLine <= bytes; at += kLine) stream_line(out + at, zero, zero);
  std::memset(out + at, 0, bytes - at);
}
#endif

}  // namespace

void stream_padded_row(std::byte* out, const std::byte* in, size_t bytes, size_t row_bytes) {
#if defined(__AVX__)
  if (bytes > 0) stream_copy(out, in, bytes);
  if (bytes < row_bytes) stream_zeros(out + bytes, row_bytes - bytes);
  _mm_sfence();  // before the batch is handed to another thread
#else
  if (bytes > 0) std::memcpy(out, in, bytes);
  if (bytes < row_bytes) std::memset(out + bytes, 0, row_bytes - bytes);
#endif
}

}  // namespace redline::data
