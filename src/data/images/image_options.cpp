// The rows of pictures.
#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/dataset_config.h"

namespace redline::data {

void ImageOptions::add_rows(config::Table<DatasetConfig>& t) {
  using D = ImageOptions;
  using config::Effect;
  t.add("decode", &D::decode, "exact decodes a JPEG whole and resizes as Pillow does; fast lets the decoder shrink it.")
      .choices({"exact", "fast"})
      .effect(Effect::Numerics)
      .tuned_by("decode");
  t.add("image_size", &D::image_size, "Height and width pictures are made.")
      .unit("pixels")
      .range(1, 16384)
      .effect(Effect::Model);
  t.add("image_crop", &D::image_crop,
        "random_resized: random area and shape; center: the middle; none: the whole picture.")
      .choices({"random_resized", "center", "none"})
      .effect(Effect::Optimisation);
  t.add("image_scale", &D::image_scale, "random_resized: lowest and highest share of the area.")
      .effect(Effect::Optimisation);
  t.add("image_ratio", &D::image_ratio, "random_resized: lowest and highest width over height.")
      .effect(Effect::Optimisation);
  t.add(
       "image_center_fraction", &D::image_center_fraction,
       "center: the picture's shorter side is made image_size over this (timm's crop_pct), then the middle is cut out.")
      .alias("crop_pct")
      .above(0)
      .at_most(1)
      .effect(Effect::Optimisation);
  t.add("image_flip", &D::image_flip, "Chance of a horizontal flip.").range(0, 1).effect(Effect::Optimisation);
  t.add("image_rotate", &D::image_rotate, "Largest random rotation to either side.")
      .unit("degrees")
      .range(0, 180)
      .effect(Effect::Optimisation);
  t.add("image_filter", &D::image_filter, "Filter of the resize.")
      .choices({"bicubic", "bilinear"})
      .effect(Effect::Numerics);
  t.add("image_channels", &D::image_channels, "3: colour; 1: grey, by the weights of ITU-R 601.")
      .range(1, 3)
      .effect(Effect::Model);
  t.add("exif_rotation", &D::exif_rotation,
        "Pictures are turned upright as their camera noted (EXIF orientation); false reads the stored pixels as they "
        "are, as "
        "timm and torchvision do.")
      .effect(Effect::Optimisation);
  t.add("image_mean", &D::image_mean, "Subtracted per channel, after division by 255; one number for grey pictures.")
      .effect(Effect::Optimisation);
  t.add("image_std", &D::image_std, "Divides per channel; one number for grey pictures.").effect(Effect::Optimisation);
  t.group("augment", &D::augment);
}

void ImageOptions::check() const {
  for (const auto& [list, name] : {std::pair(&image_scale, "image_scale"), std::pair(&image_ratio, "image_ratio")}) {
    if (list->size() != 2) throw ConfigError(std::string(name) + " needs 2 numbers.");
  }
  if (image_channels == 2) throw ConfigError("image_channels is 2; pictures have 3 channels (colour) or 1 (grey).");
  // Grey pictures may keep the three numbers of colour ones: their mean is taken.
  for (const auto& [list, name] : {std::pair(&image_mean, "image_mean"), std::pair(&image_std, "image_std")}) {
    if (list->size() != 3 && !(image_channels == 1 && list->size() == 1))
      throw ConfigError(std::string(name) + " needs 3 numbers (or 1 with image_channels: 1).");
  }
  const auto range_ok = [](const std::vector<double>& r) { return r[0] > 0.0 && r[0] <= r[1]; };
  if (!range_ok(image_scale) || image_scale[1] > 1.0 || !range_ok(image_ratio)) {
    throw ConfigError(
        "image_scale must be two shares of the picture (0 < low <= high <= 1) and image_ratio two positive numbers, "
        "low first.");
  }
  if (std::any_of(image_std.begin(), image_std.end(), [](double s) { return !(s > 0.0); }))
    throw ConfigError("image_std must be above 0.");
  if (augment) augment->check();
}

}  // namespace redline::data
