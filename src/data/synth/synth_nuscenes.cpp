// Generated scenes in the format of nuScenes v1.0-mini, readable by nuscenes-devkit: bright boxes are vehicles, thin
// ones people, grey ones barriers, so that a vehicle map can be learnt from the cameras. Scenes carry the names of
// mini_train and mini_val; each key frame is a street of its own.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/codecs/image_writer.h"
#include "data/synth/scene_picture.h"
#include "data/synth/synth_parts.h"

namespace redline::data::synth {

namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

constexpr double kDegree = std::numbers::pi / 180.0;
constexpr const char* kVersion = "v1.0-mini";

struct CameraMount {
  const char* channel;
  double degrees, x, y, focal;  // focal at a width of 1600
};
constexpr CameraMount kMounts[] = {
    {"CAM_FRONT_LEFT", 55, 1.5, 0.5, 1260},    {"CAM_FRONT", 0, 1.7, 0.0, 1260},
    {"CAM_FRONT_RIGHT", -55, 1.5, -0.5, 1260}, {"CAM_BACK_LEFT", 110, 1.0, 0.5, 1260},
    {"CAM_BACK", 180, 0.0, 0.0, 810},          {"CAM_BACK_RIGHT", -110, 1.0, -0.5, 1260}};
constexpr size_t kNumCameras = std::size(kMounts);
constexpr const char* kScenes[2][8] = {
    {"scene-0061", "scene-0553", "scene-0655", "scene-0757", "scene-0796", "scene-1077", "scene-1094", "scene-1100"},
    {"scene-0103", "scene-0916"}};
constexpr int64_t kNumScenes[2] = {8, 2};
constexpr const char* kCategories[] = {"vehicle.car", "vehicle.truck", "vehicle.bus.rigid", "human.pedestrian.adult",
                                       "movable_object.barrier"};

// 32 digits from what a row is and which.
std::string token(int64_t seed, const std::string& what) {
  const std::string text = std::to_string(seed) + "|" + what;
  return hex64(hash64(text, 1)) + hex64(hash64(text, 2));
}

struct Street {
  double x = 0, y = 0, yaw = 0;  // of the car in the world
  std::vector<SceneBox> boxes;   // around the car
  std::vector<int> category;
};

Street draw_street(const SynthConfig& config, Part part, int64_t item) {
  KeyedStream draw = stream(config.seed, static_cast<uint64_t>(part), static_cast<uint64_t>(item), Draw::Scene);
  Street street;
  street.x = draw.uniform(200, 1800);
  street.y = draw.uniform(200, 1800);
  street.yaw = draw.uniform(-std::numbers::pi, std::numbers::pi);
  const int64_t wanted = draw.uniform_int(8, 16);
  for (int attempt = 0; attempt < 200 && static_cast<int64_t>(street.boxes.size()) < wanted; ++attempt) {
    SceneBox box;
    const double radius = draw.uniform(6, 42), angle = draw.uniform(-std::numbers::pi, std::numbers::pi);
    box.x = radius * std::cos(angle), box.y = radius * std::sin(angle);
    // Along the street or across it, a little askew.
    box.yaw = (draw.uniform() < 0.7 ? 0.0 : std::numbers::pi / 2) + draw.uniform(-0.25, 0.25);
    const double what = draw.uniform();
    const int category = what < 0.55 ? 0 : what < 0.68 ? 1 : what < 0.76 ? 2 : what < 0.9 ? 3 : 4;
    constexpr double kSizes[][3] = {
        {4.6, 1.9, 1.7}, {7.5, 2.6, 3.2}, {11.0, 2.9, 3.3}, {0.7, 0.7, 1.8}, {2.2, 0.5, 1.0}};
    const double stretch = draw.uniform(0.9, 1.1);
    box.length = kSizes[category][0] * stretch, box.width = kSizes[category][1] * stretch,
    box.height = kSizes[category][2];
    const auto light = static_cast<float>(draw.uniform(0.75, 1.0));
    switch (category) {
      case 3:
        box.colour = {0.2f, 0.35f * light, 0.9f * light};
        break;
      case 4:
        box.colour = {0.5f * light, 0.5f * light, 0.48f * light};
        break;
      default:
        box.colour = draw.uniform() < 0.5 ? std::array<float, 3>{light, 0.12f, 0.1f}
                                          : std::array<float, 3>{light, 0.75f * light, 0.05f};
    }
    const bool free = std::all_of(street.boxes.begin(), street.boxes.end(), [&](const SceneBox& other) {
      return std::hypot(box.x - other.x, box.y - other.y) > (box.length + other.length) / 2 + 0.5;
    });
    if (!free || std::hypot(box.x, box.y) < box.length / 2 + 4) continue;
    street.boxes.push_back(box);
    street.category.push_back(category);
  }
  return street;
}

SceneCamera camera_of(const SynthConfig& config, size_t c) {
  const CameraMount& mount = kMounts[c];
  return {mount.degrees * kDegree,
          {mount.x, mount.y, 1.5},
          mount.focal * config.camera_width / 1600.0,
          config.camera_width,
          config.camera_height};
}

Json about_up(double yaw) { return Json{std::cos(yaw / 2), 0.0, 0.0, std::sin(yaw / 2)}; }

// From camera to car: the turn about the vertical times the change of axes (x right, y down, z ahead).
Json camera_rotation(double yaw) {
  const double w = std::cos(yaw / 2), z = std::sin(yaw / 2);
  constexpr double a[4] = {0.5, -0.5, 0.5, -0.5};
  return Json{w * a[0] - z * a[3], w * a[1] - z * a[2], w * a[2] + z * a[1], w * a[3] + z * a[0]};
}

class TableWriter {
 public:
  TableWriter(const SynthConfig& config, const fs::path& out) : config_(config), out_(out) {}

  void constants() {
    for (const char* category : kCategories)
      add("category", {{"token", id(category)},
                       {"name", category},
                       {"description", "generated"},
                       {"index", static_cast<int>(rows_["category"].size())}});
    add("attribute", {{"token", id("vehicle.moving")}, {"name", "vehicle.moving"}, {"description", "generated"}});
    add("visibility", {{"token", "4"}, {"level", "v80-100"}, {"description", "generated"}});
    add("log", {{"token", id("log")},
                {"logfile", "generated"},
                {"vehicle", "n000"},
                {"date_captured", "2026-01-01"},
                {"location", "singapore-onenorth"}});
    add("map", {{"token", id("map")},
                {"log_tokens", Json::array({id("log")})},
                {"category", "semantic_prior"},
                {"filename", ""}});
    for (size_t c = 0; c < kNumCameras; ++c) {
      const SceneCamera camera = camera_of(config_, c);
      add("sensor", {{"token", id(kMounts[c].channel)}, {"channel", kMounts[c].channel}, {"modality", "camera"}});
      add("calibrated_sensor",
          {{"token", id(std::string("calibrated ") + kMounts[c].channel)},
           {"sensor_token", id(kMounts[c].channel)},
           {"translation", camera.place},
           {"rotation", camera_rotation(camera.yaw)},
           {"camera_intrinsic",
            Json{{camera.focal, 0.0, camera.width / 2.0}, {0.0, camera.focal, camera.height / 2.0}, {0.0, 0.0, 1.0}}}});
    }
    add("sensor", {{"token", id("LIDAR_TOP")}, {"channel", "LIDAR_TOP"}, {"modality", "lidar"}});
    add("calibrated_sensor", {{"token", id("calibrated LIDAR_TOP")},
                              {"sensor_token", id("LIDAR_TOP")},
                              {"translation", Json{0.9, 0.0, 1.8}},
                              {"rotation", Json{1.0, 0.0, 0.0, 0.0}},
                              {"camera_intrinsic", Json::array()}});
  }

  void scene(const std::string& name, const std::vector<int64_t>& items) {
    const auto sample_of = [&](int64_t item) { return id("sample " + name + " " + std::to_string(item)); };
    add("scene", {{"token", id(name)},
                  {"log_token", id("log")},
                  {"nbr_samples", items.size()},
                  {"first_sample_token", sample_of(items.front())},
                  {"last_sample_token", sample_of(items.back())},
                  {"name", name},
                  {"description", "generated"}});
    for (size_t i = 0; i < items.size(); ++i)
      add("sample", {{"token", sample_of(items[i])},
                     {"timestamp", time_of(items[i])},
                     {"scene_token", id(name)},
                     {"prev", i > 0 ? sample_of(items[i - 1]) : ""},
                     {"next", i + 1 < items.size() ? sample_of(items[i + 1]) : ""}});
  }

  void frame(const std::string& scene, int64_t item, const Street& street) {
    const std::string name = scene + " " + std::to_string(item), sample = id("sample " + name);
    const auto data_row = [&](const std::string& channel, const std::string& file, bool camera) {
      const std::string pose = id("pose " + channel + " " + name);
      add("ego_pose", {{"token", pose},
                       {"timestamp", time_of(item)},
                       {"rotation", about_up(street.yaw)},
                       {"translation", Json{street.x, street.y, 0.0}}});
      add("sample_data", {{"token", id("data " + channel + " " + name)},
                          {"sample_token", sample},
                          {"ego_pose_token", pose},
                          {"calibrated_sensor_token", id("calibrated " + channel)},
                          {"timestamp", time_of(item)},
                          {"fileformat", camera ? "jpg" : "pcd"},
                          {"is_key_frame", true},
                          {"height", camera ? config_.camera_height : 0},
                          {"width", camera ? config_.camera_width : 0},
                          {"filename", file},
                          {"prev", ""},
                          {"next", ""}});
    };
    for (const CameraMount& mount : kMounts) data_row(mount.channel, file_of(scene, item, mount.channel, "jpg"), true);
    data_row("LIDAR_TOP", file_of(scene, item, "LIDAR_TOP", "pcd.bin"), false);
    const double c = std::cos(street.yaw), s = std::sin(street.yaw);
    for (size_t b = 0; b < street.boxes.size(); ++b) {
      const SceneBox& box = street.boxes[b];
      const std::string which = name + " " + std::to_string(b), annotation = id("annotation " + which);
      add("instance", {{"token", id("instance " + which)},
                       {"category_token", id(kCategories[street.category[b]])},
                       {"nbr_annotations", 1},
                       {"first_annotation_token", annotation},
                       {"last_annotation_token", annotation}});
      add("sample_annotation",
          {{"token", annotation},
           {"sample_token", sample},
           {"instance_token", id("instance " + which)},
           {"visibility_token", "4"},
           {"attribute_tokens", Json::array()},
           {"translation", Json{street.x + c * box.x - s * box.y, street.y + s * box.x + c * box.y, box.height / 2}},
           {"size", Json{box.width, box.length, box.height}},
           {"rotation", about_up(street.yaw + box.yaw)},
           {"prev", ""},
           {"next", ""},
           {"num_lidar_pts", 5},
           {"num_radar_pts", 0}});
    }
  }

  void write() {
    for (const auto& [name, rows] : rows_) {
      std::string text = "[";
      for (size_t i = 0; i < rows.size(); ++i) text += (i == 0 ? "\n" : ",\n") + rows[i];
      write_item(out_ / kVersion / (name + ".json"), text + "\n]\n");
    }
  }

  static std::string file_of(const std::string& scene, int64_t item, const std::string& channel,
                             const char* extension) {
    return "samples/" + channel + "/" + scene + "-" + std::to_string(item) + "__" + channel + "__" +
           std::to_string(time_of(item)) + "." + extension;
  }

 private:
  static int64_t time_of(int64_t item) { return 1530000000000000 + item * 500000; }
  std::string id(const std::string& what) const { return token(config_.seed, what); }
  void add(const std::string& table, const Json& row) { rows_[table].push_back(row.dump()); }

  SynthConfig config_;
  fs::path out_;
  std::map<std::string, std::vector<std::string>> rows_;
};

}  // namespace

SynthResult make_nuscenes(const SynthConfig& config, const fs::path& out) {
  FileOps& files = posix_file_ops();
  files.make_directory(out / kVersion);
  files.make_directory(out / "maps");
  files.make_directory(out / "samples");
  for (const CameraMount& mount : kMounts) files.make_directory(out / "samples" / mount.channel);
  files.make_directory(out / "samples" / "LIDAR_TOP");
  TableWriter tables(config, out);
  tables.constants();
  std::atomic<uint64_t> bytes = 0;
  for (const Part part : {Part::Train, Part::Validation}) {
    const auto which = static_cast<size_t>(part);
    const int64_t count = part == Part::Train ? config.num : config.num_validation;
    const auto scene_of = [&](int64_t item) { return std::string(kScenes[which][item % kNumScenes[which]]); };
    for (int64_t s = 0; s < std::min(kNumScenes[which], count); ++s) {
      std::vector<int64_t> items;
      for (int64_t item = s; item < count; item += kNumScenes[which]) items.push_back(item);
      tables.scene(scene_of(s), items);
    }
    for (int64_t item = 0; item < count; ++item) tables.frame(scene_of(item), item, draw_street(config, part, item));
    for_each_item(count, config.num_threads, [&](int64_t item) {
      const Street street = draw_street(config, part, item);
      for (size_t c = 0; c < kNumCameras; ++c) {
        const uint64_t key =
            mix_key(mix_key(static_cast<uint64_t>(config.seed), which), static_cast<uint64_t>(item) * 8 + c);
        const Array picture = scene_picture(camera_of(config, c), street.boxes, key);
        const std::string jpeg = encode_jpeg(rgb_view(picture), config.quality);
        write_item(out / TableWriter::file_of(scene_of(item), item, kMounts[c].channel, "jpg"), jpeg);
        bytes += jpeg.size();
      }
      // One point of x, y, z, intensity and ring, so that the file opens.
      write_item(out / TableWriter::file_of(scene_of(item), item, "LIDAR_TOP", "pcd.bin"), std::string(20, '\0'));
    });
  }
  tables.write();
  SynthResult result;
  result.train = result.validation = out;
  result.num_items = config.num + config.num_validation;
  result.num_bytes = bytes;
  return result;
}

}  // namespace redline::data::synth
