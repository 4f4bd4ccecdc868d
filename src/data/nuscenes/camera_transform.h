// Camera pictures of a sample, from bytes to one array, with the matrices of what was done to them (lift-splat-shoot's
// img_transform): resize, crop, flip and rotation, drawn for each camera in training and fixed in validation. Only the
// part of a picture that the crop keeps is resized, and normalised on the way.
#pragma once

#include <string>
#include <vector>

#include "core/philox.h"
#include "data/codecs/image.h"
#include "data/nuscenes.h"
#include "data/transform.h"

namespace redline::data::nuscenes {

// What happens to one picture.
struct CameraDraw {
  double resize = 1.0;
  int32_t width = 0, height = 0;  // after the resize
  int32_t left = 0, top = 0;      // of the crop; may lie outside: black there
  bool flip = false;
  double degrees = 0.0;
};

// Homography of a draw: (u, v) of the stored picture -> post_rot (u, v, 1) + post_tran.
struct CameraMatrices {
  float rotation[9], translation[3];
};
CameraMatrices camera_matrices(const CameraDraw& draw, int64_t height, int64_t width);

class CameraTransform : public SampleTransform {
 public:
  struct Settings {
    NuscenesOptions options;
    int64_t height = 128, width = 352;
    ImageDecode decode = ImageDecode::Exact;
    Normalization normalization;
    bool training = true;
  };
  explicit CameraTransform(Settings settings) : settings_(std::move(settings)) {}

  // "view0_bytes", "view1_bytes", ... and the calibration of all cameras -> the fields of data/nuscenes.h.
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return settings_.training; }

  // For one picture of that stored size.
  CameraDraw draw(int32_t stored_width, int32_t stored_height, KeyedStream* stream) const;

 private:
  void prepare(std::span<const std::byte> bytes, const CameraDraw& draw, std::span<float> out) const;
  Settings settings_;
};

}  // namespace redline::data::nuscenes
