// From an encoded picture to a normalised F32 [3, H, W]: random or fixed crop, resize, flip, rotation. Decoding is part
// of it, because the crop says what must be decoded; with a feature cache DecodeImage goes before, so that pixels are
// kept instead of files.
#pragma once

#include <array>
#include <string>

#include "data/codecs/image.h"
#include "data/transform.h"

namespace redline::data {

enum class ImageCrop { RandomResized, Center, None };

struct ImageSettings {
  int32_t width = 224, height = 224;
  ImageCrop crop = ImageCrop::None;
  double min_scale = 0.08, max_scale = 1.0;  // RandomResized: share of the picture's area
  double min_ratio = 3.0 / 4.0, max_ratio = 4.0 / 3.0;
  double center_fraction = 0.875;  // Center: share of the shorter side (224 of 256)
  double flip_chance = 0.0;
  double max_degrees = 0.0;  // rotation, uniform in both directions
  ResizeFilter filter = ResizeFilter::Bicubic;
  ImageDecode decode = ImageDecode::Exact;
  Normalization normalization;

  bool random() const { return crop == ImageCrop::RandomResized || flip_chance > 0.0 || max_degrees > 0.0; }
  std::string fingerprint() const;
};

// "image_bytes" -> "image" U8 [H, W, 3], whole.
class DecodeImage : public SampleTransform {
 public:
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return "decode image"; }
  bool random() const override { return false; }
};

// "image_bytes" or "image" U8 [H, W, 3] -> "image" F32 [3, height, width].
class PrepareImage : public SampleTransform {
 public:
  explicit PrepareImage(const ImageSettings& settings) : settings_(settings) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return settings_.fingerprint(); }
  bool random() const override { return settings_.random(); }

 private:
  ImageSettings settings_;
};

// The box a picture is cut to. RandomResized as torchvision draws it: ten tries of area and ratio, then the centre.
CropBox draw_crop(const ImageSettings& settings, int32_t width, int32_t height, KeyedStream& stream);

}  // namespace redline::data
