#include "data/codecs/image_colour.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace redline::data {

namespace {

using Lookup = std::array<uint8_t, 256>;
using Lookups = std::array<Lookup, 3>;
using Histogram3 = std::array<std::array<int64_t, 256>, 3>;

template <class Each>
Array map_pixels(const RgbView& source, const Each& each) {
  Array out = Array::empty(Dtype::U8, {source.height, source.width, 3});
  uint8_t* to = out.as<uint8_t>().data();
  for (int32_t y = 0; y < source.height; ++y) {
    const uint8_t* from = source.pixels + y * source.stride;
    for (int32_t x = 0; x < source.width; ++x, from += 3, to += 3) each(from, to);
  }
  return out;
}

Array look_up(const RgbView& source, const Lookups& tables) {
  return map_pixels(source, [&](const uint8_t* from, uint8_t* to) {
    for (size_t c = 0; c < 3; ++c) to[c] = tables[c][from[c]];
  });
}

template <class Each>
Array look_up_each(const RgbView& source, const Each& each) {
  Lookup table{};
  for (int i = 0; i < 256; ++i) table[static_cast<size_t>(i)] = static_cast<uint8_t>(each(i));
  return look_up(source, {table, table, table});
}

Histogram3 histogram_of(const RgbView& source) {
  Histogram3 counts{};
  for (int32_t y = 0; y < source.height; ++y) {
    const uint8_t* from = source.pixels + y * source.stride;
    for (int32_t x = 0; x < source.width; ++x, from += 3)
      for (size_t c = 0; c < 3; ++c) ++counts[c][from[c]];
  }
  return counts;
}

Lookup same() {
  Lookup table{};
  for (size_t i = 0; i < 256; ++i) table[i] = static_cast<uint8_t>(i);
  return table;
}

Lookup stretched(const std::array<int64_t, 256>& counts) {
  int low = 0, high = 255;
  while (low < 255 && counts[static_cast<size_t>(low)] == 0) ++low;
  while (high > 0 && counts[static_cast<size_t>(high)] == 0) --high;
  if (high <= low) return same();
  const double scale = 255.0 / (high - low), offset = -low * scale;
  Lookup table{};
  for (int i = 0; i < 256; ++i)
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(static_cast<int>(i * scale + offset), 0, 255));
  return table;
}

Lookup flattened(const std::array<int64_t, 256>& counts) {
  int64_t total = 0, last = 0;
  int used = 0;
  for (const int64_t count : counts)
    if (count > 0) total += count, last = count, ++used;
  const int64_t step = (total - last) / 255;
  if (used <= 1 || step == 0) return same();
  Lookup table{};
  int64_t n = step / 2;
  for (size_t i = 0; i < 256; ++i) {
    table[i] = static_cast<uint8_t>(std::min<int64_t>(n / step, 255));
    n += counts[i];
  }
  return table;
}

// From `plain` by `factor` towards the picture, and beyond it. Pillow rounds the product before it adds, and cuts the
// sum; where a processor would do both at once, a table of the products keeps them apart.
class Blend {
 public:
  explicit Blend(double factor) {
    for (int apart = -255; apart <= 255; ++apart)
      product_[static_cast<size_t>(apart + 255)] = static_cast<float>(factor) * static_cast<float>(apart);
  }
  uint8_t operator()(int plain, int picture) const {
    const float value = static_cast<float>(plain) + product_[static_cast<size_t>(picture - plain + 255)];
    return static_cast<uint8_t>(std::clamp(value, 0.0f, 255.0f));
  }

 private:
  std::array<float, 511> product_;
};

// 3 x 3 with 5 in the middle, over 13; the outermost pixels stay.
Array smoothed(const RgbView& source) {
  Array out = map_pixels(source, [](const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 3); });
  constexpr float kSide = 1.0f / 13.0f, kMiddle = 5.0f / 13.0f;
  for (int32_t y = 1; y + 1 < source.height; ++y) {
    uint8_t* to = out.as<uint8_t>().data() + (int64_t{y} * source.width + 1) * 3;
    const uint8_t* at = source.pixels + y * source.stride + 3;
    for (int64_t i = 0; i < int64_t{source.width - 2} * 3; ++i, ++at, ++to) {
      float sum = 0.5f;
      for (int64_t dy = -1; dy <= 1; ++dy)
        for (int64_t dx = -3; dx <= 3; dx += 3)
          sum += (dy == 0 && dx == 0 ? kMiddle : kSide) * static_cast<float>(at[dy * source.stride + dx]);
      *to = static_cast<uint8_t>(std::clamp(sum, 0.0f, 255.0f));
    }
  }
  return out;
}

int mean_grey(const RgbView& source) {
  int64_t sum = 0;
  for (int32_t y = 0; y < source.height; ++y) {
    const uint8_t* from = source.pixels + y * source.stride;
    for (int32_t x = 0; x < source.width; ++x, from += 3) sum += grey_of(from);
  }
  const double pixels = static_cast<double>(source.width) * source.height;
  return static_cast<int>(static_cast<double>(sum) / std::max(1.0, pixels) + 0.5);
}

}  // namespace

Array autocontrast_rgb(const RgbView& source) {
  const Histogram3 counts = histogram_of(source);
  return look_up(source, {stretched(counts[0]), stretched(counts[1]), stretched(counts[2])});
}

Array equalize_rgb(const RgbView& source) {
  const Histogram3 counts = histogram_of(source);
  return look_up(source, {flattened(counts[0]), flattened(counts[1]), flattened(counts[2])});
}

Array invert_rgb(const RgbView& source) {
  return look_up_each(source, [](int i) { return 255 - i; });
}

Array posterize_rgb(const RgbView& source, int bits) {
  const int mask = bits >= 8 ? 255 : 255 & ~((1 << (8 - std::max(0, bits))) - 1);
  return look_up_each(source, [mask](int i) { return i & mask; });
}

Array solarize_rgb(const RgbView& source, int threshold) {
  return look_up_each(source, [threshold](int i) { return i < threshold ? i : 255 - i; });
}

Array solarize_add_rgb(const RgbView& source, int amount) {
  return look_up_each(source, [amount](int i) { return i < 128 ? std::min(255, i + amount) : i; });
}

Array enhance_rgb(const RgbView& source, Enhance what, double factor) {
  const Blend blend(factor);
  if (what == Enhance::Sharpness) {
    const Array plain = smoothed(source);
    const uint8_t* at = plain.as<uint8_t>().data();
    return map_pixels(source, [&](const uint8_t* from, uint8_t* to) {
      for (int c = 0; c < 3; ++c) to[c] = blend(*at++, from[c]);
    });
  }
  if (what == Enhance::Color)
    return map_pixels(source, [&](const uint8_t* from, uint8_t* to) {
      const int grey = grey_of(from);
      for (int c = 0; c < 3; ++c) to[c] = blend(grey, from[c]);
    });
  const int plain = what == Enhance::Contrast ? mean_grey(source) : 0;
  return look_up_each(source, [&](int i) { return blend(plain, i); });
}

void make_grey(uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i, pixels += 3) {
    const uint8_t grey = grey_of(pixels);
    pixels[0] = pixels[1] = pixels[2] = grey;
  }
}

}  // namespace redline::data
