#include <algorithm>
#include <set>

#include "core/cores.h"
#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "data/nuscenes.h"
#include "data/nuscenes/camera_transform.h"
#include "data/nuscenes/nuscenes_source.h"
#include "data/nuscenes/scene_splits.h"

namespace redline::data {

namespace {

namespace fs = std::filesystem;

// The folder of tables: the one asked for, or the only one that is there.
std::string find_version(const fs::path& root, const std::string& asked) {
  std::error_code failed;
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator(root, failed)) {
    std::error_code ignored;
    const std::string name = entry.path().filename().string();
    // One of nuScenes' names without the table is damaged, which its reader says.
    if (entry.is_directory(ignored) &&
        (starts_with(name, "v1.0-") || fs::exists(entry.path() / "sample_data.json", ignored)))
      found.push_back(name);
  }
  if (failed)
    throw DataError("The nuScenes folder " + printable(root.string()) + " cannot be listed: " + failed.message() + ".");
  std::sort(found.begin(), found.end());
  const std::string there = found.empty() ? "none" : printable(join(found, ", "));
  if (!asked.empty()) {
    std::error_code ignored;
    if (fs::is_directory(root / asked, ignored)) return asked;
    throw DataError("model.nuscenes.version is " + printable(asked) + ", but " + printable(root.string()) +
                    " has no such folder; there: " + there + ".");
  }
  if (found.size() == 1) return found[0];
  throw DataError(printable(root.string()) + " holds " + (found.empty() ? "no" : "several") +
                  " folders of nuScenes tables (there: " + there +
                  "); expected one such as v1.0-mini or v1.0-trainval" +
                  (found.empty() ? "." : ": say which with model.nuscenes.version."));
}

class NuscenesKind : public Kind {
 public:
  NuscenesKind(NuscenesOptions options, NuscenesRequest request)
      : options_(std::move(options)), request_(std::move(request)) {
    if (request_.classes.size() > 32) throw ConfigError("model.classes: at most 32 classes are supported.");
  }
  std::string name() const override { return "nuscenes"; }
  bool decodes_pictures() const override { return true; }
  std::optional<int64_t> longest(const DatasetConfig&) const override { return std::nullopt; }

  OpenedData open(const DatasetConfig& config, bool training) const override {
    config.check();
    if (!config.manifest_filepath.is_null())
      throw ConfigError("manifest_filepath is for audio; this data set is of kind nuscenes: give path.");
    fs::path root;
    if (config.synth) {
      if (config.synth->kind != name())
        throw ConfigError("synth makes " + config.synth->kind +
                          ", but this data set is of kind nuscenes: set synth.kind to nuscenes.");
      const SynthResult made = synthesize_cached(*config.synth, fs::path(config.cache_dir) / "synth");
      root = training ? made.train : made.validation;
    } else {
      const auto lists = name_lists(config.path, "path");
      if (lists.size() != 1 || lists[0].size() != 1)
        throw ConfigError("path must name one folder with nuScenes tables and pictures.");
      root = lists[0][0];
    }
    const std::string version = find_version(root, options_.version);
    const bool mini = version.find("mini") != std::string::npos;
    const std::string& asked = training ? options_.train_split : options_.val_split;
    const std::string split = !asked.empty() ? asked
                              : training     ? (mini ? "mini_train" : "train")
                                             : (mini ? "mini_val" : "val");
    nuscenes::TableRequest wanted{options_.cams, request_.classes, nuscenes::scenes_of(split), affinity_cpus()};
    nuscenes::Tables tables = nuscenes::read_tables(root / version, wanted);
    if (tables.frames.empty())
      throw DataError("The split " + printable(split) + " has no sample in " + printable((root / version).string()) +
                      "; choose another with model.nuscenes." + (training ? "train_split" : "val_split") + ".");
    if (tables.annotations.empty())
      log_warning_once("No annotation in " + printable((root / version).string()) + " is of the classes " +
                       join(request_.classes, ", ") + ": all maps are empty.");
    OpenedData data;
    data.source = std::make_shared<nuscenes::NuscenesSource>(
        root, std::move(tables),
        nuscenes::LabelGrid(request_.xbound, request_.ybound, static_cast<int64_t>(request_.classes.size())),
        request_.boxes);
    return data;
  }

  Transforms transforms(const DatasetConfig& config, const TaskNeeds& needs, const OpenedData&) const override {
    nuscenes::CameraTransform::Settings settings;
    settings.options = options_;
    settings.height = request_.height;
    settings.width = request_.width;
    settings.decode = config.decode == "fast" ? ImageDecode::Fast : ImageDecode::Exact;
    for (size_t c = 0; c < 3; ++c) {
      settings.normalization.mean[c] = static_cast<float>(config.image_mean[c]);
      settings.normalization.stddev[c] = static_cast<float>(config.image_std[c]);
    }
    settings.training = needs.training;
    Transforms list{std::make_shared<nuscenes::CameraTransform>(std::move(settings))};
    for (const auto& own : {needs.raw_transform, needs.sample_transform})
      if (own != nullptr) list.push_back(own);
    return list;
  }

  CollateSpec collate(const DatasetConfig&, const Source&) const override {
    CollateSpec spec;
    for (const char* field : {"imgs", "rots", "trans", "intrins", "post_rots", "post_trans", "binimgs"})
      spec.fields.push_back({field, 0.0, 1, "", false});
    if (request_.boxes > 0) spec.fields.push_back({"boxes", 0.0, 1, "", false});
    return spec;
  }

 private:
  NuscenesOptions options_;
  NuscenesRequest request_;
};

}  // namespace

std::shared_ptr<const Kind> nuscenes_kind(const NuscenesOptions& options, const NuscenesRequest& request) {
  return std::make_shared<NuscenesKind>(options, request);
}

}  // namespace redline::data
