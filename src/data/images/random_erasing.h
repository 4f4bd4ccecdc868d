// Random erasing (Zhong et al. 2017) as timm runs it: after normalisation, a box of 2 % to a third of the picture is
// filled with zeros (const), with one normal draw per channel (rand) or with normal noise (pixel).
#pragma once

#include <string>

#include "data/transform.h"

namespace redline::data {

enum class EraseFill : uint8_t { Constant, Channel, Pixel };

struct ErasingSettings {
  double chance = 0.25;
  EraseFill fill = EraseFill::Pixel;
  int boxes = 1;
  double min_area = 0.02, max_area = 1.0 / 3.0, min_aspect = 0.3;
};

// "image" F32 [C, H, W] in and out.
class RandomErasing : public SampleTransform {
 public:
  explicit RandomErasing(const ErasingSettings& settings, std::string field = "image")
      : settings_(settings), field_(std::move(field)) {}
  void apply(Sample& sample, const DrawKey& key) const override;
  std::string fingerprint() const override;
  bool random() const override { return true; }

 private:
  ErasingSettings settings_;
  std::string field_;
};

}  // namespace redline::data
