// A street seen by a camera: sky, ground with a grid of tiles, and coloured boxes standing on it, drawn by the camera's
// own calibration. Plain painter's algorithm: enough for a network to learn where boxes stand, and cheap.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/array.h"

namespace redline::data::synth {

using Point = std::array<double, 3>;

// Standing on the ground (z = 0) around the car: x ahead, y to the left.
struct SceneBox {
  double x = 0, y = 0, yaw = 0;  // middle
  double length = 4.5, width = 1.9, height = 1.6;
  std::array<float, 3> colour{};  // 0..1
};

struct SceneCamera {
  double yaw = 0;       // 0 looks ahead, a quarter turn to the left
  Point place{};        // on the car
  double focal = 1266;  // pixels
  int32_t width = 1600, height = 900;
};

// `noise_key` shifts the grain of the picture; the same picture for the same arguments. U8 [height, width, 3].
Array scene_picture(const SceneCamera& camera, const std::vector<SceneBox>& boxes, uint64_t noise_key);

}  // namespace redline::data::synth
