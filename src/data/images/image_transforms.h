// From an encoded picture to a normalised F32 [C, H, W]: random or fixed crop, resize, flip, rotation. Decoding is part
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
  double center_fraction = 0.875;  // Center: the shorter side becomes width over this (224 of 256)
  double flip_chance = 0.0;
  double max_degrees = 0.0;  // rotation, uniform in both directions
  ResizeFilter filter = ResizeFilter::Bicubic;
  ImageDecode decode = ImageDecode::Exact;
  bool upright = true;   // EXIF orientation is followed
  int32_t channels = 3;  // 1: grey, normalised by the first numbers
  Normalization normalization;

  bool random() const { return crop == ImageCrop::RandomResized || flip_chance > 0.0 || max_degrees > 0.0; }
  std::string fingerprint() const;
};

// "image_bytes" -> "image" U8 [H, W, 3], whole.
class DecodeImage : public SampleTransform {
 public:
  explicit DecodeImage(bool upright = true) : upright_(upright) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return upright_ ? "decode image upright" : "decode image"; }
  bool random() const override { return false; }

 private:
  bool upright_;
};

// "image_bytes" or "image" U8 [H, W, 3] -> "image" F32 [channels, height, width]. `field` other than "image": one of
// several pictures of a sample ("front", from "front_bytes"), with draws of its own.
class PrepareImage : public SampleTransform {
 public:
  explicit PrepareImage(const ImageSettings& settings, std::string field = "image")
      : settings_(settings), field_(std::move(field)) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return settings_.fingerprint() + (field_ == "image" ? "" : " " + field_); }
  bool random() const override { return settings_.random(); }

 protected:
  // What is drawn for a sample: the box with its flip, and degrees (0: no rotation).
  struct Drawn {
    ImageRequest request;
    double degrees = 0.0;
  };
  Drawn draw(const Sample& sample, const DrawKey& key) const;
  Array pixels(const Sample& sample, const Drawn& drawn) const;  // cut, resized and turned: U8 [height, width, 3]
  void replace(Sample& sample, Array image) const;

  ImageSettings settings_;
  std::string field_;
};

// Pictures that are numbers already, "image" F32 [C, H, W]: the size is checked, and they may be flipped.
class FloatImage : public SampleTransform {
 public:
  explicit FloatImage(const ImageSettings& settings) : settings_(settings) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return "float " + settings_.fingerprint(); }
  bool random() const override { return settings_.flip_chance > 0.0; }

 private:
  ImageSettings settings_;
};

// The same without the normalisation, for what works on pixels: "image" U8 [height, width, 3], and under
// "image_matrix" F32 [3, 3] where a pixel of the stored picture went: (x, y, 1) -> (x', y', 1).
class CropImage : public PrepareImage {
 public:
  using PrepareImage::PrepareImage;
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override { return "pixels of " + PrepareImage::fingerprint(); }
};

// "image" U8 [H, W, 3] -> F32 [3, H, W].
class NormalizeImage : public SampleTransform {
 public:
  explicit NormalizeImage(const Normalization& normalization, std::string field = "image", int32_t channels = 3)
      : normalization_(normalization), field_(std::move(field)), channels_(channels) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return false; }

 private:
  Normalization normalization_;
  std::string field_;
  int32_t channels_;
};

// The box a picture is cut to. RandomResized as torchvision draws it: ten tries of area and ratio, then the centre.
// Center is torchvision's Resize and CenterCrop in one: the box that those leave, in pixels of the picture, and the
// window that makes their very pixels; none where the resized picture is smaller than the result.
std::optional<ResizeWindow> center_window(const ImageSettings& settings, int32_t width, int32_t height);
CropBox draw_crop(const ImageSettings& settings, int32_t width, int32_t height, KeyedStream& stream);

}  // namespace redline::data
