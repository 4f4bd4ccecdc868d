// Where the places of a map lie in its attention windows: padded on the right and below to whole windows, shifted by
// half a window in every second block. One table per map size and shift instead of a roll, a pad and a permutation.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace redline::models::lift_splat {

struct WindowMap {
  WindowMap(int64_t map_height, int64_t map_width, int64_t window_side);

  int64_t height, width, window;
  int64_t windows_down, windows_across;
  int64_t padded_height() const { return windows_down * window; }
  int64_t padded_width() const { return windows_across * window; }
  int64_t windows() const { return windows_down * windows_across; }
  int64_t places() const { return window * window; }  // of one window

  // [windows * window^2]: place h * width + w of the map that stands there, -1 for padding.
  std::vector<int32_t> sources(int64_t shift) const;
  // [windows * window^2]: which of the nine regions of the shifted map a place belongs to; places of different regions
  // do not see each other. Empty without a shift.
  std::vector<uint8_t> regions(int64_t shift) const;
  // The same as an additive mask [windows, window^2, window^2] of 0 and -100.
  torch::Tensor mask(int64_t shift) const;
};

// [window^2, window^2] of rows of the bias table, (dy + window - 1) * (2 window - 1) + dx + window - 1.
torch::Tensor relative_index(int64_t window);

}  // namespace redline::models::lift_splat
