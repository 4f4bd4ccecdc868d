// Mixup (Zhang et al. 2017) and CutMix (Yun et al. 2019) on a group of samples, as timm mixes a batch: picture i with
// picture n - 1 - i, in shares drawn from Beta(alpha, alpha). Labels stay whole numbers: a sample says which class was
// mixed in and how much of it, from which a loss makes soft targets without the data knowing how many classes there
// are.
#pragma once

#include <string>

#include "core/philox.h"
#include "data/transform.h"

namespace redline::data {

inline constexpr const char *kMixedLabel = "mixed_label", *kMixedShare = "mixed_share";

struct MixSettings {
  double mixup_alpha = 0.0, cutmix_alpha = 0.0;  // 0: not
  double chance = 1.0;                           // that a group (or a sample) is mixed at all
  double cutmix_chance = 0.5;                    // of cutmix instead of mixup, where both are on
  bool each = false;                             // shares drawn for each sample, not once for the group
};

// Sets "image", and in every sample "mixed_label" (I64 []) and "mixed_share" (F32 [], 0 when nothing was mixed in).
class MixPictures : public GroupTransform {
 public:
  explicit MixPictures(const MixSettings& settings) : settings_(settings) {}
  void apply(std::span<Sample> group, const DrawKey& key) const override;
  std::string fingerprint() const override;

 private:
  MixSettings settings_;
};

// One draw of Beta(alpha, alpha).
double draw_beta(KeyedStream& stream, double alpha);

}  // namespace redline::data
