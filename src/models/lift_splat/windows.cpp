#include "models/lift_splat/windows.h"

namespace redline::models::lift_splat {

WindowMap::WindowMap(int64_t map_height, int64_t map_width, int64_t window_side)
    : height(map_height),
      width(map_width),
      window(window_side),
      windows_down((map_height + window_side - 1) / window_side),
      windows_across((map_width + window_side - 1) / window_side) {}

std::vector<int32_t> WindowMap::sources(int64_t shift) const {
  std::vector<int32_t> out(static_cast<size_t>(windows() * places()));
  size_t at = 0;
  for (int64_t down = 0; down < windows_down; ++down)
    for (int64_t across = 0; across < windows_across; ++across)
      for (int64_t y = 0; y < window; ++y)
        for (int64_t x = 0; x < window; ++x, ++at) {
          const int64_t h = (down * window + y + shift) % padded_height();
          const int64_t w = (across * window + x + shift) % padded_width();
          out[at] = h < height && w < width ? static_cast<int32_t>(h * width + w) : -1;
        }
  return out;
}

std::vector<uint8_t> WindowMap::regions(int64_t shift) const {
  if (shift == 0) return {};
  const auto third = [&](int64_t at, int64_t padded) { return at < padded - window ? 0 : at < padded - shift ? 1 : 2; };
  std::vector<uint8_t> out(static_cast<size_t>(windows() * places()));
  size_t at = 0;
  for (int64_t down = 0; down < windows_down; ++down)
    for (int64_t across = 0; across < windows_across; ++across)
      for (int64_t y = 0; y < window; ++y)
        for (int64_t x = 0; x < window; ++x, ++at)
          out[at] = static_cast<uint8_t>(3 * third(down * window + y, padded_height()) +
                                         third(across * window + x, padded_width()));
  return out;
}

torch::Tensor WindowMap::mask(int64_t shift) const {
  const int64_t n = places();
  torch::Tensor out = torch::zeros({windows(), n, n});
  const std::vector<uint8_t> region = regions(shift);
  float* to = out.mutable_data_ptr<float>();
  for (int64_t w = 0; w < windows() && shift > 0; ++w)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (region[static_cast<size_t>(w * n + i)] != region[static_cast<size_t>(w * n + j)])
          to[(w * n + i) * n + j] = -100.0f;
  return out;
}

torch::Tensor relative_index(int64_t window) {
  const int64_t n = window * window;
  torch::Tensor out = torch::empty({n, n}, torch::kInt64);
  auto* to = out.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      to[i * n + j] = (i / window - j / window + window - 1) * (2 * window - 1) + i % window - j % window + window - 1;
  return out;
}

}  // namespace redline::models::lift_splat
