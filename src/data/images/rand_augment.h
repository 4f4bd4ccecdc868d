// RandAugment (Cubuk et al. 2019) as timm runs it: a few operations drawn with replacement, each done with a chance of
// a half, at a magnitude of 0 to 10 that varies normally. On pixels, before they are normalised.
#pragma once

#include <array>
#include <string>

#include "data/codecs/image_resize.h"
#include "data/transform.h"

namespace redline::data {

struct RandAugmentSettings {
  double magnitude = 10.0, magnitude_std = 0.0;  // a std of infinity: uniform from 0 to the magnitude
  double most = 10.0;                            // magnitudes stay below
  int layers = 2;
  double chance = 0.5;
  bool increasing = false;  // every operation grows with the magnitude
  ResizeFilter filter = ResizeFilter::Bicubic;
  std::array<uint8_t, 3> fill{124, 116, 104};  // what turning and moving leaves empty: the mean colour
};

// timm's words: "rand-m9-mstd0.5-inc1", with m (magnitude), mstd, mmax, n (operations), p (chance), inc. Throws
// ConfigError naming the word that is not understood.
RandAugmentSettings parse_rand_augment(const std::string& words);

// "image" U8 [H, W, 3] in and out.
class RandAugment : public SampleTransform {
 public:
  RandAugment(const RandAugmentSettings& settings, std::string field = "image")
      : settings_(settings), field_(std::move(field)) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

  static const std::vector<std::string>& names(bool increasing);  // of the operations
  // One operation at a magnitude; `negate` where the direction is drawn.
  Array operation(const RgbView& source, const std::string& name, double magnitude, bool negate) const;

 private:
  RandAugmentSettings settings_;
  std::string field_;
};

// Brightness, contrast and saturation times factors of 1 - v to 1 + v, in random order: torchvision's ColorJitter.
class ColorJitter : public SampleTransform {
 public:
  explicit ColorJitter(std::array<double, 3> strengths, std::string field = "image")
      : strengths_(strengths), field_(std::move(field)) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  std::array<double, 3> strengths_;
  std::string field_;
};

}  // namespace redline::data
