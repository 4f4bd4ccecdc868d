// The rows of random changes to pictures in training.
#include <algorithm>

#include "core/error.h"
#include "data/dataset_config.h"
#include "data/images/rand_augment.h"

namespace redline::data {

config::Table<AugmentConfig> AugmentConfig::fields() {
  using C = AugmentConfig;
  constexpr auto kTrains = config::Effect::Optimisation;
  config::Table<C> t;
  t.about(
      "Random changes to pictures, in timm's order: crop and flip, then these, erasing after normalisation, mixing "
      "last.");
  t.add(
       "color_jitter", &C::color_jitter,
       "Largest change of brightness, contrast and saturation: three numbers, or one for all. Not beside auto_augment.")
      .at_least(0)
      .effect(kTrains);
  t.add("auto_augment", &C::auto_augment, "RandAugment in timm's words, e.g. rand-m9-mstd0.5-inc1; empty: none.")
      .alias("aa")
      .effect(kTrains);
  t.add("reprob", &C::reprob, "Chance that a box of a picture is erased, after normalisation.")
      .range(0, 1)
      .effect(kTrains);
  t.add("remode", &C::remode,
        "What an erased box is filled with: zeros (const), a draw per channel (rand), noise (pixel).")
      .choices({"const", "rand", "pixel"})
      .effect(kTrains);
  t.add("recount", &C::recount, "Boxes erased, smaller the more they are.").range(1, 100).effect(kTrains);
  t.add("mixup", &C::mixup, "Alpha of mixup: two pictures of a batch are blended, and their labels; 0: not.")
      .range(0, 1000)
      .effect(kTrains);
  t.add("cutmix", &C::cutmix, "Alpha of cutmix: a box of one picture is put into another; 0: not.")
      .range(0, 1000)
      .effect(kTrains);
  t.add("mixup_prob", &C::mixup_prob, "Chance that a batch is mixed at all.").range(0, 1).effect(kTrains);
  t.add("mixup_switch_prob", &C::mixup_switch_prob, "Chance of cutmix instead of mixup, where both are on.")
      .range(0, 1)
      .effect(kTrains);
  t.add("mixup_mode", &C::mixup_mode, "Shares are drawn once for a batch, or for each picture (elem).")
      .choices({"batch", "elem"})
      .effect(kTrains);
  return t;
}

void AugmentConfig::check() const {
  if (!color_jitter.empty() && color_jitter.size() != 1 && color_jitter.size() != 3)
    throw ConfigError("augment.color_jitter needs 3 numbers (brightness, contrast, saturation) or 1 for all; it has " +
                      std::to_string(color_jitter.size()) + ".");
  if (!auto_augment.empty()) parse_rand_augment(auto_augment);
}

}  // namespace redline::data
