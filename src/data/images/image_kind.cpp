#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/files/open_parts.h"
#include "data/images/array_source.h"
#include "data/images/image_table.h"
#include "data/images/image_transforms.h"
#include "data/images/mix_pictures.h"
#include "data/images/rand_augment.h"
#include "data/images/random_erasing.h"
#include "data/images/web_dataset_source.h"
#include "data/kinds.h"

namespace redline::data {

namespace {

ImageSettings image_settings(const DatasetConfig& config) {
  ImageSettings image;
  image.width = image.height = config.image_size;
  image.crop = config.image_crop == "random_resized" ? ImageCrop::RandomResized
               : config.image_crop == "center"       ? ImageCrop::Center
                                                     : ImageCrop::None;
  image.min_scale = config.image_scale[0], image.max_scale = config.image_scale[1];
  image.min_ratio = config.image_ratio[0], image.max_ratio = config.image_ratio[1];
  image.center_fraction = config.image_center_fraction;
  image.flip_chance = config.image_flip;
  image.max_degrees = config.image_rotate;
  image.filter = config.image_filter == "bicubic" ? ResizeFilter::Bicubic : ResizeFilter::Bilinear;
  image.decode = config.decode == "fast" ? ImageDecode::Fast : ImageDecode::Exact;
  image.upright = config.exif_rotation;
  image.channels = config.image_channels;
  // Grey pictures given three numbers take their mean.
  const auto number = [&](const std::vector<double>& list, size_t c) {
    const bool average = config.image_channels == 1 && list.size() == 3;
    return static_cast<float>(average ? (list[0] + list[1] + list[2]) / 3.0 : list[list.size() == 3 ? c : 0]);
  };
  for (size_t c = 0; c < 3; ++c) {
    image.normalization.mean[c] = number(config.image_mean, c);
    image.normalization.stddev[c] = number(config.image_std, c);
  }
  return image;
}

// What works on pixels between crop and normalisation; null: nothing. As in timm, RandAugment takes the place of the
// colour jitter.
std::shared_ptr<const SampleTransform> pixel_augmentation(const AugmentConfig& config, const ImageSettings& image) {
  if (!config.auto_augment.empty()) {
    if (!config.color_jitter.empty())
      log_info("augment.color_jitter is not applied beside auto_augment, which changes colours itself (as in timm).");
    RandAugmentSettings settings = parse_rand_augment(config.auto_augment);
    settings.filter = image.filter;
    for (size_t c = 0; c < 3; ++c) {
      const double value = std::nearbyint(255.0 * static_cast<double>(image.normalization.mean[c]));
      settings.fill[c] = static_cast<uint8_t>(std::clamp(value, 0.0, 255.0));
    }
    return std::make_shared<RandAugment>(settings);
  }
  if (config.color_jitter.empty()) return nullptr;
  const auto strength = [&](size_t i) { return config.color_jitter[config.color_jitter.size() == 3 ? i : 0]; };
  return std::make_shared<ColorJitter>(std::array{strength(0), strength(1), strength(2)});
}

std::shared_ptr<const SampleTransform> erasing(const AugmentConfig& config) {
  ErasingSettings settings;
  settings.chance = config.reprob;
  settings.boxes = config.recount;
  settings.fill = config.remode == "const"  ? EraseFill::Constant
                  : config.remode == "rand" ? EraseFill::Channel
                                            : EraseFill::Pixel;
  return std::make_shared<RandomErasing>(settings);
}

class ImageKind : public StoredKind {
 public:
  std::string name() const override { return "images"; }
  std::string synth_name() const override { return "images"; }
  bool decodes_pictures() const override { return true; }
  std::optional<int64_t> longest(const DatasetConfig&) const override { return std::nullopt; }

  // One pass from bytes to normalised planes, unless the task wants the pixels in between.
  Transforms transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData& data) const override {
    const ImageSettings settings = image_settings(config);
    Transforms list;
    if (data.float_pictures) {
      refuse_pixel_keys(config, needs);
      list.push_back(std::make_shared<FloatImage>(settings));
      finish(list, config, needs);
      return list;
    }
    if (config.cache != "none") list.push_back(std::make_shared<DecodeImage>(settings.upright));
    const auto augment = config.augment ? pixel_augmentation(*config.augment, settings) : nullptr;
    if (augment == nullptr && needs.raw_transform == nullptr) {
      list.push_back(std::make_shared<PrepareImage>(settings));
    } else {
      list.push_back(std::make_shared<CropImage>(settings));
      if (augment != nullptr) list.push_back(augment);
      if (needs.raw_transform != nullptr) list.push_back(needs.raw_transform);
      list.push_back(std::make_shared<NormalizeImage>(settings.normalization, "image", settings.channels));
    }
    finish(list, config, needs);
    return list;
  }

  std::shared_ptr<const GroupTransform> group_transform(const DatasetConfig& config,
                                                        const TaskNeeds& needs) const override {
    if (!config.augment || !config.augment->mixes()) return needs.group_transform;
    if (needs.group_transform != nullptr)
      throw ConfigError("augment.mixup and augment.cutmix cannot be used here: the task mixes samples itself.");
    const AugmentConfig& c = *config.augment;
    return std::make_shared<MixPictures>(
        MixSettings{c.mixup, c.cutmix, c.mixup_prob, c.mixup_switch_prob, c.mixup_mode == "elem"});
  }

  // Where samples are mixed (mixup, cutmix) they also say with which class, and how much of it.
  CollateSpec collate(const DatasetConfig&, const Source&) const override {
    CollateSpec spec;
    spec.fields.push_back({"image", 0.0, 1, "", false, /*picture=*/true});
    for (const char* name : {"label", kMixedLabel, kMixedShare}) spec.fields.push_back({name, 0.0, 1, "", true});
    return spec;
  }

 protected:
  void refuse_foreign_keys(const DatasetConfig& config) const override {
    refuse_audio_keys(config);
    refuse(!config.columns.empty(), "columns", "Parquet data");
  }

  OpenedData open_files(const DatasetConfig& config) const override {
    const NameLists lists = parts_of(config.path, "path", config.is_concat);
    const bool tars = all_tars(lists);
    int floats = 0, pixels = 0;
    std::vector<std::shared_ptr<Source>> parts;
    for (const auto& names : lists) {
      if (tars) {
        parts.push_back(std::make_shared<WebDatasetSource>(as_paths(names), WebKind::Images));
        continue;
      }
      std::vector<std::shared_ptr<Source>> joined;
      for (const auto& name : names) {
        if (ArraySource::names_arrays(name)) {
          const auto arrays = std::make_shared<ArraySource>(name);
          ++(arrays->floats() ? floats : pixels);
          joined.push_back(arrays);
          continue;
        }
        const auto source = std::make_shared<ImageSource>(name, config.allow_absolute.value());
        compare_classes(*source, name);
        joined.push_back(source);
        ++pixels;
      }
      parts.push_back(join_parts(std::move(joined)).source);
    }
    if (floats > 0 && pixels > 0)
      throw ConfigError("path names arrays of floats and pictures of bytes: one data set holds one or the other.");
    OpenedData data = join_parts(std::move(parts), tars);
    data.float_pictures = floats > 0;
    return data;
  }

 private:
  static void refuse_pixel_keys(const DatasetConfig& config, const TaskNeeds& needs) {
    const bool pixel_work =
        config.augment && (!config.augment->auto_augment.empty() || !config.augment->color_jitter.empty());
    if (pixel_work || needs.raw_transform != nullptr || config.image_crop != "none" || config.image_rotate > 0.0)
      throw ConfigError(
          "auto_augment, color_jitter, image_crop and image_rotate work on pictures of bytes; this data set holds "
          "floats, which may be flipped, erased and mixed.");
  }

  static void finish(Transforms& list, const DatasetConfig& config, const TaskNeeds& needs) {
    if (config.augment && config.augment->reprob > 0.0) list.push_back(erasing(*config.augment));
    if (needs.sample_transform != nullptr) list.push_back(needs.sample_transform);
  }

  // Labels are the places of the classes' names, so every part of a job must have the same names: a class that one part
  // lacks would number the rest otherwise.
  void compare_classes(const ImageSource& source, const std::string& name) const {
    if (source.classes().empty()) return;
    const std::lock_guard lock(mutex_);
    if (classes_.empty()) {
      classes_ = source.classes();
      named_by_ = name;
      return;
    }
    if (classes_ == source.classes()) return;
    const auto missing = [](const std::vector<std::string>& from, const std::vector<std::string>& in) {
      std::vector<std::string> list;
      std::set_difference(from.begin(), from.end(), in.begin(), in.end(), std::back_inserter(list));
      const size_t count = list.size();
      if (count > 5) list.resize(5);
      return count == 0 ? std::string("none") : join(list, ", ") + (count > 5 ? ", ..." : "");
    };
    throw DataError("The classes of " + printable(name) + " are not those of " + printable(named_by_) +
                    ", so the same label would mean different classes. Only there: " +
                    printable(missing(source.classes(), classes_)) +
                    "; missing there: " + printable(missing(classes_, source.classes())) +
                    ". Give both the same class folders (an empty one counts), or an index with numbers as labels.");
  }

  mutable std::mutex mutex_;
  mutable std::vector<std::string> classes_;  // of the first data set that had names
  mutable std::string named_by_;
};

}  // namespace

// A new one each time: it remembers the classes of the job it is used for.
std::shared_ptr<const Kind> image_kind() { return std::make_shared<const ImageKind>(); }

}  // namespace redline::data
