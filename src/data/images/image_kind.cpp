#include "data/files/open_parts.h"
#include "data/images/image_table.h"
#include "data/images/image_transforms.h"
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
  for (size_t c = 0; c < 3; ++c) {
    image.normalization.mean[c] = static_cast<float>(config.image_mean[c]);
    image.normalization.stddev[c] = static_cast<float>(config.image_std[c]);
  }
  return image;
}

class ImageKind : public StoredKind {
 public:
  std::string name() const override { return "images"; }
  std::string synth_name() const override { return "images"; }
  bool decodes_pictures() const override { return true; }
  std::optional<int64_t> longest(const DatasetConfig&) const override { return std::nullopt; }

  // One pass from bytes to normalised planes, unless the task wants the pixels in between.
  Transforms transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData&) const override {
    const ImageSettings settings = image_settings(config);
    Transforms list;
    if (config.cache != "none") list.push_back(std::make_shared<DecodeImage>());
    if (needs.raw_transform == nullptr) {
      list.push_back(std::make_shared<PrepareImage>(settings));
    } else {
      list.push_back(std::make_shared<CropImage>(settings));
      list.push_back(needs.raw_transform);
      list.push_back(std::make_shared<NormalizeImage>(settings.normalization));
    }
    if (needs.sample_transform != nullptr) list.push_back(needs.sample_transform);
    return list;
  }

  CollateSpec collate(const DatasetConfig&, const Source&) const override {
    CollateSpec spec;
    spec.fields.push_back({"image", 0.0, 1, "", false, /*picture=*/true});
    spec.fields.push_back({"label", 0.0, 1, "", true});
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
    std::vector<std::shared_ptr<Source>> parts;
    for (const auto& names : lists) {
      if (tars) {
        parts.push_back(std::make_shared<WebDatasetSource>(as_paths(names), WebKind::Images));
        continue;
      }
      std::vector<std::shared_ptr<Source>> joined;
      for (const auto& name : names)
        joined.push_back(std::make_shared<ImageSource>(name, config.allow_absolute.value()));
      parts.push_back(join_parts(std::move(joined)).source);
    }
    return join_parts(std::move(parts), tars);
  }
};

}  // namespace

std::shared_ptr<const Kind> image_kind() {
  static const auto kind = std::make_shared<const ImageKind>();
  return kind;
}

}  // namespace redline::data
