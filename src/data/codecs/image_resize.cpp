// The vectorised resize, with Pillow's sums to the last bit. Both passes multiply 16-bit pixels by 16-bit numbers in
// pairs (vpmaddwd); Pillow's weights have 22 bits behind the point, so each is two numbers, its upper bits and its
// lower eleven, whose sums are put together at the end. The first pass covers only the rows the second one reads; the
// second pass works on one output row at a time, so that the last step (copy, or normalise to planes) finds it in the
// first-level cache. Without AVX2 the reference does the work.
#include "data/codecs/image_resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/check.h"
#include "core/error.h"
#include "data/codecs/image_axis.h"
#include "data/workers/item_memory.h"

#if defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define REDLINE_RESIZE_AVX2 1
#else
#define REDLINE_RESIZE_AVX2 0
#endif

namespace redline::data {

namespace {

// value * scale + bias == (value / 255 - mean) / stddev
struct ScaleBias {
  std::array<float, 3> scale, bias;
};

ScaleBias scale_bias(const Normalization& normalization) {
  ScaleBias result{};
  for (size_t c = 0; c < 3; ++c) {
    result.scale[c] = static_cast<float>(1.0 / (255.0 * normalization.stddev[c]));
    result.bias[c] = static_cast<float>(-static_cast<double>(normalization.mean[c]) / normalization.stddev[c]);
  }
  return result;
}

void normalize_row_plain(const uint8_t* row, int32_t begin, int32_t width, bool flip, const ScaleBias& sb, float* out,
                         int64_t plane) {
  for (int32_t x = begin; x < width; ++x) {
    const uint8_t* pixel = row + 3 * (flip ? width - 1 - x : x);
    for (size_t c = 0; c < 3; ++c)
      out[static_cast<int64_t>(c) * plane + x] = static_cast<float>(pixel[c]) * sb.scale[c] + sb.bias[c];
  }
}

#if REDLINE_RESIZE_AVX2

constexpr int64_t kRowPadding = 64;                // vector loads and stores may run past the end of a row of ours
constexpr int64_t kLoadOverrun = 13;               // a load of 16 bytes that begins at a row's last pixel
constexpr size_t kMaxKeptRows = size_t{64} << 20;  // bytes a thread keeps for the next picture

// The resizing thread's rows; given back when a giant has passed.
class RowBuffers {
 public:
  RowBuffers() = default;
  RowBuffers(const RowBuffers&) = delete;
  RowBuffers& operator=(const RowBuffers&) = delete;
  ~RowBuffers() {
    if (middle().capacity() > kMaxKeptRows) std::vector<uint8_t>().swap(middle());
  }
  std::vector<uint8_t>& middle() { return kept()[0]; }
  std::vector<uint8_t>& line() { return kept()[1]; }
  std::vector<uint8_t>& copies() { return kept()[2]; }

 private:
  static std::array<std::vector<uint8_t>, 3>& kept() {
    thread_local std::array<std::vector<uint8_t>, 3> rows;
    return rows;
  }
};

constexpr int kLowBits = 11;

// Weights in two parts, padded with zeros to `stride` per output.
struct PackedAxis {
  const codecs::ResizeAxis* axis = nullptr;
  int32_t stride = 0;
  std::vector<int16_t> high, low;  // weight = high * 2^kLowBits + low
};

PackedAxis pack_axis(const codecs::ResizeAxis& axis, int32_t group) {
  PackedAxis packed;
  packed.axis = &axis;
  packed.stride = (axis.max_count + group - 1) / group * group;
  const std::vector<int32_t> fixed = codecs::fixed_weights(axis);
  packed.high.assign(static_cast<size_t>(axis.out_size) * static_cast<size_t>(packed.stride), 0);
  packed.low = packed.high;
  for (size_t out = 0; out < static_cast<size_t>(axis.out_size); ++out)
    for (size_t i = 0; i < static_cast<size_t>(axis.max_count); ++i) {
      const int32_t weight = fixed[out * static_cast<size_t>(axis.max_count) + i];
      const size_t slot = out * static_cast<size_t>(packed.stride) + i;
      packed.high[slot] = static_cast<int16_t>(weight >> kLowBits);
      packed.low[slot] = static_cast<int16_t>(weight & ((1 << kLowBits) - 1));
    }
  return packed;
}

// Four rows at once, so that weights are loaded and spread once for all. Four pixels a step: the two halves of a
// register hold pixels 0-1 and 2-3 as (r0 r1 g0 g1 b0 b1), which vpmaddwd turns into sums per channel.
void shrink_columns_4(const std::array<const uint8_t*, 4>& in, const PackedAxis& packed,
                      const std::array<uint8_t*, 4>& out) {
  const __m256i spread = _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1,  //
                                          6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m256i repeat = _mm256_setr_epi8(0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3,  //
                                          4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7);
  const __m128i half = _mm_set1_epi32(1 << (codecs::kPrecisionBits - 1));
  const codecs::ResizeAxis& axis = *packed.axis;
  for (int32_t x = 0; x < axis.out_size; ++x) {
    const auto slot = static_cast<size_t>(x);
    const size_t at = slot * static_cast<size_t>(packed.stride);
    const int16_t *high = packed.high.data() + at, *low = packed.low.data() + at;
    const int64_t begin = int64_t{axis.first[slot]} * 3;
    const int32_t count = axis.count[slot];
    const __m256i zero = _mm256_setzero_si256();
    __m256i upper[4] = {zero, zero, zero, zero}, lower[4] = {zero, zero, zero, zero};
    for (int32_t i = 0; i < count; i += 4) {
      int64_t four_high, four_low;
      std::memcpy(&four_high, high + i, sizeof(four_high));
      std::memcpy(&four_low, low + i, sizeof(four_low));
      const __m256i w_high = _mm256_shuffle_epi8(_mm256_set1_epi64x(four_high), repeat);
      const __m256i w_low = _mm256_shuffle_epi8(_mm256_set1_epi64x(four_low), repeat);
      for (size_t r = 0; r < 4; ++r) {
        const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in[r] + begin + int64_t{i} * 3));
        const __m256i pairs = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), spread);
        upper[r] = _mm256_add_epi32(upper[r], _mm256_madd_epi16(pairs, w_high));
        lower[r] = _mm256_add_epi32(lower[r], _mm256_madd_epi16(pairs, w_low));
      }
    }
    __m128i total[4];
    for (size_t r = 0; r < 4; ++r) {
      const __m256i sums = _mm256_add_epi32(_mm256_slli_epi32(upper[r], kLowBits), lower[r]);
      const __m128i both = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
      total[r] = _mm_srai_epi32(_mm_add_epi32(both, half), codecs::kPrecisionBits);
    }
    const __m128i bytes = _mm_packus_epi16(_mm_packs_epi32(total[0], total[1]), _mm_packs_epi32(total[2], total[3]));
    const int lanes[4] = {_mm_cvtsi128_si32(bytes), _mm_extract_epi32(bytes, 1), _mm_extract_epi32(bytes, 2),
                          _mm_extract_epi32(bytes, 3)};
    for (size_t r = 0; r < 4; ++r)
      std::memcpy(out[r] + int64_t{x} * 3, &lanes[r], 4);  // the 4th byte is overwritten by the next pixel
  }
}

// One output row: weighted sum of `count` rows, 32 bytes at a time.
void blend_rows(const uint8_t* first_row, int64_t stride, int32_t count, const int16_t* high, const int16_t* low,
                int64_t num_bytes, uint8_t* out) {
  const __m256i half = _mm256_set1_epi32(1 << (codecs::kPrecisionBits - 1));
  const __m256i zero = _mm256_setzero_si256();
  for (int64_t x = 0; x < num_bytes; x += 32) {
    __m256i sums[4] = {half, half, half, half}, upper[4] = {zero, zero, zero, zero};
    for (int32_t i = 0; i < count; i += 2) {
      const uint8_t* above = first_row + i * stride + x;
      const uint8_t* below = i + 1 < count ? above + stride : above;  // its weight is 0 then
      int32_t pair_high, pair_low;
      std::memcpy(&pair_high, high + i, sizeof(pair_high));
      std::memcpy(&pair_low, low + i, sizeof(pair_low));
      const __m256i w_high = _mm256_set1_epi32(pair_high), w_low = _mm256_set1_epi32(pair_low);
      const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(above));
      const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(below));
      const __m256i front = _mm256_unpacklo_epi8(a, b), back = _mm256_unpackhi_epi8(a, b);
      const __m256i pixels[4] = {_mm256_unpacklo_epi8(front, zero), _mm256_unpackhi_epi8(front, zero),
                                 _mm256_unpacklo_epi8(back, zero), _mm256_unpackhi_epi8(back, zero)};
      for (size_t q = 0; q < 4; ++q) {
        upper[q] = _mm256_add_epi32(upper[q], _mm256_madd_epi16(pixels[q], w_high));
        sums[q] = _mm256_add_epi32(sums[q], _mm256_madd_epi16(pixels[q], w_low));
      }
    }
    for (size_t q = 0; q < 4; ++q)
      sums[q] =
          _mm256_srai_epi32(_mm256_add_epi32(sums[q], _mm256_slli_epi32(upper[q], kLowBits)), codecs::kPrecisionBits);
    const __m256i bytes =
        _mm256_packus_epi16(_mm256_packs_epi32(sums[0], sums[1]), _mm256_packs_epi32(sums[2], sums[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + x), bytes);
  }
}

// Eight pixels a step; reads 32 bytes from the first of them. `readable` bytes may be read from `row`.
void normalize_row(const uint8_t* row, int64_t readable, int32_t width, const ScaleBias& sb, float* out,
                   int64_t plane) {
  // Channel c of pixels 0-3 lies in the first 12 bytes, of 4-7 in the next 12.
  __m128i picks[3];
  for (int c = 0; c < 3; ++c) {
    const auto at = [c](int pixel) { return static_cast<char>(3 * pixel + c); };
    picks[c] = _mm_setr_epi8(at(0), -1, -1, -1, at(1), -1, -1, -1, at(2), -1, -1, -1, at(3), -1, -1, -1);
  }
  int32_t x = 0;
  for (; x + 8 <= width && int64_t{x} * 3 + 28 <= readable; x += 8) {
    const __m128i front = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + int64_t{x} * 3));
    const __m128i back = _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + int64_t{x} * 3 + 12));
    for (size_t c = 0; c < 3; ++c) {
      const __m256i integers = _mm256_set_m128i(_mm_shuffle_epi8(back, picks[c]), _mm_shuffle_epi8(front, picks[c]));
      const __m256 values =
          _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), _mm256_set1_ps(sb.scale[c]), _mm256_set1_ps(sb.bias[c]));
      _mm256_storeu_ps(out + static_cast<int64_t>(c) * plane + x, values);
    }
  }
  normalize_row_plain(row, x, width, false, sb, out, plane);
}

// Runs both passes and hands each output row (readable a little beyond its end) to `emit(y, row)`.
template <class Emit>
void resize_rows(const RgbView& source, const ResizeRequest& request, const Emit& emit) {
  const auto [columns, rows] = codecs::make_axes(source, request);
  const PackedAxis packed_columns = pack_axis(columns, 4), packed_rows = pack_axis(rows, 2);

  const int32_t top = rows.first.front();
  const int32_t bottom = rows.first.back() + rows.count.back();
  const int64_t wide = int64_t{request.width} * 3;
  const int64_t stride = (wide + 31) / 32 * 32 + kRowPadding;
  RowBuffers buffers;
  std::vector<uint8_t>&middle = buffers.middle(), &line = buffers.line();
  // A picture a million rows high would need hundreds of MiB for this pass alone.
  if (!charge_memory(static_cast<uint64_t>(stride) * static_cast<uint64_t>(bottom - top)))
    throw DataError("its " + std::to_string(source.height) + " rows are too many: " + too_large_text());
  middle.resize(static_cast<size_t>(stride * (bottom - top)));
  line.resize(static_cast<size_t>(stride));
  // A vector load begins at a pixel and may run 13 bytes past its row's end: harmless inside the picture, so only the
  // rows that have less than that behind them are copied to where there is room.
  const int64_t row_bytes = int64_t{source.width} * 3, room = row_bytes + kRowPadding;
  int32_t first_copied = source.height - 1;
  while (first_copied > 0 && (source.height - first_copied) * source.stride < kLoadOverrun) --first_copied;
  std::vector<uint8_t>& copies = buffers.copies();
  copies.assign(static_cast<size_t>(room * (source.height - first_copied)), 0);
  for (int32_t y = first_copied; y < source.height; ++y)
    std::memcpy(copies.data() + (y - first_copied) * room, source.pixels + y * source.stride,
                static_cast<size_t>(row_bytes));
  const auto row_of = [&](int32_t y) -> const uint8_t* {
    return y < first_copied ? source.pixels + y * source.stride : copies.data() + (y - first_copied) * room;
  };
  for (int32_t y = top; y < bottom; y += 4) {
    std::array<const uint8_t*, 4> in{};
    std::array<uint8_t*, 4> out{};
    for (int32_t r = 0; r < 4; ++r) {  // short blocks do their last row again
      const int32_t at = std::min(y + r, bottom - 1);
      in[static_cast<size_t>(r)] = row_of(at);
      out[static_cast<size_t>(r)] = middle.data() + (at - top) * stride;
    }
    shrink_columns_4(in, packed_columns, out);
  }
  for (int32_t y = 0; y < request.height; ++y) {
    const auto slot = static_cast<size_t>(y);
    const size_t at = slot * static_cast<size_t>(packed_rows.stride);
    blend_rows(middle.data() + (rows.first[slot] - top) * stride, stride, rows.count[slot],
               packed_rows.high.data() + at, packed_rows.low.data() + at, wide, line.data());
    emit(y, line.data(), stride);
  }
}

#endif  // REDLINE_RESIZE_AVX2

}  // namespace

RgbView rgb_view(const Array& image) {
  REDLINE_CHECK(image.dtype() == Dtype::U8 && image.shape().size() == 3 && image.shape()[2] == 3,
                "pictures are U8 [H, W, 3]");
  return {static_cast<const uint8_t*>(image.data()), static_cast<int32_t>(image.shape()[1]),
          static_cast<int32_t>(image.shape()[0]), image.shape()[1] * 3};
}

#if REDLINE_RESIZE_AVX2

Array resize_rgb(const RgbView& source, const ResizeRequest& request) {
  Array out = Array::empty(Dtype::U8, {request.height, request.width, 3});
  uint8_t* pixels = out.as<uint8_t>().data();
  const int64_t wide = int64_t{request.width} * 3;
  resize_rows(source, request, [&](int32_t y, const uint8_t* row, int64_t) {
    std::memcpy(pixels + y * wide, row, static_cast<size_t>(wide));
  });
  return out;
}

void resize_normalize_rgb(const RgbView& source, const ResizeRequest& request, const Normalization& normalization,
                          std::span<float> out) {
  const int64_t plane = int64_t{request.width} * request.height;
  REDLINE_CHECK(static_cast<int64_t>(out.size()) == 3 * plane, "the row of the batch fits the picture");
  const ScaleBias sb = scale_bias(normalization);
  resize_rows(source, request, [&](int32_t y, const uint8_t* row, int64_t readable) {
    normalize_row(row, readable, request.width, sb, out.data() + int64_t{y} * request.width, plane);
  });
}

#else

Array resize_rgb(const RgbView& source, const ResizeRequest& request) { return reference::resize(source, request); }

void resize_normalize_rgb(const RgbView& source, const ResizeRequest& request, const Normalization& normalization,
                          std::span<float> out) {
  normalize_rgb(rgb_view(reference::resize(source, request)), false, normalization, out);
}

#endif

void normalize_rgb(const RgbView& source, bool flip_horizontal, const Normalization& normalization,
                   std::span<float> out) {
  const int64_t plane = int64_t{source.width} * source.height;
  REDLINE_CHECK(static_cast<int64_t>(out.size()) == 3 * plane, "the row of the batch fits the picture");
  const ScaleBias sb = scale_bias(normalization);
  for (int32_t y = 0; y < source.height; ++y) {
    const uint8_t* row = source.pixels + y * source.stride;
    float* target = out.data() + int64_t{y} * source.width;
#if REDLINE_RESIZE_AVX2
    if (!flip_horizontal) {
      const int64_t readable = y + 1 < source.height ? source.stride : int64_t{source.width} * 3;
      normalize_row(row, readable, source.width, sb, target, plane);
      continue;
    }
#endif
    normalize_row_plain(row, 0, source.width, flip_horizontal, sb, target, plane);
  }
}

}  // namespace redline::data
