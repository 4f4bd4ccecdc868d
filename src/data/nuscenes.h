// nuScenes as a kind of data: key frames of the scenes of a split, their camera pictures with calibration, and the
// occupied cells of a bird's-eye-view grid, as lift-splat-shoot reads them. A task says which grid, picture size and
// classes it wants; what a user may choose is a table.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/fields.h"
#include "data/kind.h"

namespace redline::data {

struct NuscenesOptions {
  std::string version, train_split, val_split;  // empty: what the folder has, and the splits that belong to it
  std::vector<std::string> cams{"CAM_FRONT_LEFT", "CAM_FRONT", "CAM_FRONT_RIGHT",
                                "CAM_BACK_LEFT",  "CAM_BACK",  "CAM_BACK_RIGHT"};
  int64_t ncams = 5;  // drawn in training; validation sees all
  std::vector<double> resize_lim{0.193, 0.225}, bot_pct_lim{0.0, 0.22}, rot_lim{-5.4, 5.4};
  bool rand_flip = true;

  int64_t cameras_in_training() const;
  // Throws ConfigError for values that contradict each other.
  void check() const;
  static config::Table<NuscenesOptions> fields();
};

struct NuscenesRequest {
  std::vector<double> xbound, ybound;  // lower, upper, step in metres
  int64_t height = 128, width = 352;   // of a picture
  std::vector<std::string> classes;    // first words of category names; one map each
  int64_t boxes = 0;                   // annotations a sample carries for pictures, at most
};

// A sample: imgs F32 [N, 3, height, width], rots, intrins, post_rots F32 [N, 3, 3], trans, post_trans F32 [N, 3],
// binimgs F32 [classes, X, Y]; where asked for, boxes F32 [boxes, 8, 3], the corners of the nearest annotations seen
// from the car (four at the front, four at the back), zeros beyond their number.
std::shared_ptr<const Kind> nuscenes_kind(const NuscenesOptions& options, const NuscenesRequest& request);

}  // namespace redline::data
