// Pictures of one sample: what was predicted over what is there, seen from above, and the cameras with the boxes of the
// annotations projected into them, which shows at a glance whether calibration and augmentation fit the pictures.
#pragma once

#include <torch/torch.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/lift_splat/options.h"
#include "task/batch.h"

namespace redline::models::lift_splat {

// One row of a batch, copied; without the batch dimension.
struct SceneView {
  torch::Tensor imgs, rots, trans, intrins, post_rots, post_trans;  // of N cameras
  torch::Tensor boxes;          // [most, 8, 3]: corners around the car, zeros where there is none; may be undefined
  torch::Tensor chance, truth;  // [classes, X, Y]
};
SceneView copy_scene(const task::Batch& batch, const torch::Tensor& logits, int64_t row);

// PNG. Hits, misses and false alarms have a colour each; ahead is up. The title goes above.
std::string grid_png(const SceneView& scene, const Options& options, const std::string& title);
std::string cameras_png(const SceneView& scene, const std::string& title);

// Where a point around the car lies in a camera: x, y of its picture and the depth along its axis.
struct Projected {
  double x = 0, y = 0, depth = 0;
};
// Ends of the line between two points around the car as far as it lies in front of camera `view` and inside its
// picture; nothing when no part does.
std::optional<std::pair<Projected, Projected>> project_line(const SceneView& scene, int64_t view, const float* from,
                                                            const float* to);

// The twelve edges of a box by its corners: four at the front (0..3), four at the back (4..7), and between them.
const std::vector<std::pair<int, int>>& box_edges();

}  // namespace redline::models::lift_splat
