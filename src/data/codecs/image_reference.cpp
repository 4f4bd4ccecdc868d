// The plain resize: Pillow's arithmetic, one pixel at a time. Used by the tests and on processors without AVX2.
#include <algorithm>
#include <vector>

#include "data/codecs/image_axis.h"

namespace redline::data::reference {

namespace {

using codecs::kPrecisionBits;

uint8_t clip8(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecisionBits, 0, 255)); }

}  // namespace

Array resize(const RgbView& source, const ResizeRequest& request) {
  const auto [columns, rows] = codecs::make_axes(source, request);
  const auto column_weights = codecs::fixed_weights(columns), row_weights = codecs::fixed_weights(rows);

  const auto wide = static_cast<size_t>(request.width) * 3;
  std::vector<uint8_t> middle(static_cast<size_t>(source.height) * wide);
  for (int32_t y = 0; y < source.height; ++y) {
    for (int32_t x = 0; x < request.width; ++x) {
      const auto slot = static_cast<size_t>(x);
      const int32_t* weights = column_weights.data() + slot * static_cast<size_t>(columns.max_count);
      for (int32_t c = 0; c < 3; ++c) {
        int32_t sum = 1 << (kPrecisionBits - 1);
        for (int32_t i = 0; i < columns.count[slot]; ++i)
          sum += source.pixels[y * source.stride + (columns.first[slot] + i) * 3 + c] * weights[i];
        middle[static_cast<size_t>(y) * wide + slot * 3 + static_cast<size_t>(c)] = clip8(sum);
      }
    }
  }
  Array out = Array::empty(Dtype::U8, {request.height, request.width, 3});
  uint8_t* pixel = out.as<uint8_t>().data();
  for (int32_t y = 0; y < request.height; ++y) {
    const auto slot = static_cast<size_t>(y);
    const int32_t* weights = row_weights.data() + slot * static_cast<size_t>(rows.max_count);
    for (size_t x = 0; x < wide; ++x) {
      int32_t sum = 1 << (kPrecisionBits - 1);
      for (int32_t i = 0; i < rows.count[slot]; ++i)
        sum += middle[static_cast<size_t>(rows.first[slot] + i) * wide + x] * weights[i];
      *pixel++ = clip8(sum);
    }
  }
  return out;
}

void normalize(const RgbView& source, bool flip_horizontal, const Normalization& normalization, std::span<float> out) {
  size_t next = 0;
  for (size_t c = 0; c < 3; ++c)
    for (int32_t y = 0; y < source.height; ++y)
      for (int32_t x = 0; x < source.width; ++x) {
        const int32_t from = flip_horizontal ? source.width - 1 - x : x;
        const float value =
            static_cast<float>(source.pixels[y * source.stride + from * 3 + static_cast<int32_t>(c)]) / 255.0f;
        out[next++] = (value - normalization.mean[c]) / normalization.stddev[c];
      }
}

}  // namespace redline::data::reference
