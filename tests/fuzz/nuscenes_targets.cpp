// nuScenes' nine tables, joined, to the label map of every key frame. An input is the tables' texts one after the
// other, with a line "%%%" between them.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "core/error.h"
#include "data/nuscenes/label_map.h"
#include "data/nuscenes/tables.h"
#include "target.h"

namespace redline::fuzz {

namespace {

using namespace redline::data;
using namespace redline::data::nuscenes;

constexpr std::string_view kTableEnds = "\n%%%\n";
constexpr std::array kTables = {"scene",    "sample",   "sensor",   "calibrated_sensor", "sample_data",
                                "ego_pose", "category", "instance", "sample_annotation"};

// The folder the tables stand in, in memory. A campaign opens millions and most inputs change one table, so only those
// that differ from the input before are written.
class TableFolder {
 public:
  TableFolder() : path_(memory_folder()) {
    for (size_t i = 0; i < kTables.size(); ++i) {
      files_[i] = ::open(file_of(i).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      require(files_[i] >= 0, "a file in memory can be made");
    }
  }
  ~TableFolder() {
    for (const int file : files_) ::close(file);
  }
  TableFolder(const TableFolder&) = delete;
  TableFolder& operator=(const TableFolder&) = delete;

  void write(size_t table, std::string_view text) {
    if (written_[table] == text) return;
    written_[table] = text;
    require(::ftruncate(files_[table], 0) == 0 &&
                ::pwrite(files_[table], text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()),
            "a file in memory can be written");
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::string file_of(size_t table) const { return (path_ / (std::string(kTables[table]) + ".json")).string(); }
  std::filesystem::path path_;
  std::array<int, kTables.size()> files_{};
  std::array<std::string, kTables.size()> written_{};
};

void check_joined(const Tables& tables) {
  require(tables.views.size() == tables.frames.size() * tables.cameras.size(), "every frame has all cameras");
  for (const View& view : tables.views) {
    require(view.calibration >= 0 && static_cast<size_t>(view.calibration) < tables.calibrations.size(),
            "every view has its calibration");
    require(view.width >= 0 && view.height >= 0, "sizes are counts");
  }
  int64_t at = 0;
  for (size_t i = 0; i < tables.frames.size(); ++i) {
    const KeyFrame& frame = tables.frames[i];
    require(frame.first_annotation == at && frame.num_annotations >= 0, "annotations belong to frames, in order");
    at += frame.num_annotations;
    if (i > 0) require(!(frame.scene < tables.frames[i - 1].scene), "frames come by scene");
  }
  require(at == static_cast<int64_t>(tables.annotations.size()), "every annotation belongs to a frame");
}

// Accepted when a frame has a label.
bool read_scenes(std::span<const std::byte> bytes) {
  static TableFolder folder;
  std::string_view rest = text_of(bytes);
  for (size_t i = 0; i < kTables.size(); ++i) {
    const size_t end = std::min(rest.find(kTableEnds), rest.size());
    folder.write(i, rest.substr(0, end));
    rest.remove_prefix(std::min(rest.size(), end + kTableEnds.size()));
  }
  const TableRequest request{
      {"CAM_FRONT", "CAM_BACK"}, {"vehicle", "human"}, [](std::string_view scene) { return scene != "scene-0103"; }, 1};
  try {
    const Tables tables = read_tables(folder.path(), request);
    check_joined(tables);
    const LabelGrid grid({-12, 12, 0.5}, {-8, 8, 0.5}, 2);
    for (const KeyFrame& frame : tables.frames) {
      const Array map = label_map(tables, frame, grid);
      require(map.shape() == Shape{2, 48, 32}, "a label has the grid's size");
      for (const float cell : map.as<float>()) require(cell == 0.0f || cell == 1.0f, "a cell is occupied or not");
    }
    return !tables.frames.empty();
  } catch (const DataError& error) {
    require(std::string_view(error.what()).size() < 1000, "a refusal is short");
    return false;
  }
}

std::string token_of(int number) {
  std::string out(32, '0');
  out[31] = "0123456789abcdef"[number % 16];
  out[30] = static_cast<char>('a' + number / 16);
  return out;
}

struct Box {
  const char *translation, *size, *rotation;
  int instance;
};

// One scene with two key frames, another one that is not wanted; two cameras, the lidar and a radar.
std::string scenes_with(const std::vector<Box>& boxes, const char* car) {
  const auto t = [](int number) { return "\"" + token_of(number) + "\""; };
  std::array<std::string, kTables.size()> rows;
  const auto add = [&](size_t table, const std::string& row) {
    rows[table] += (rows[table].empty() ? "" : ",\n") + row;
  };
  add(0, "{\"token\": " + t(1) + ", \"name\": \"scene-0061\"}");
  add(0, "{\"token\": " + t(2) + ", \"name\": \"scene-0103\"}");
  const int sensors[] = {10, 11, 12, 13};
  const char* channels[] = {"CAM_FRONT", "CAM_BACK", "LIDAR_TOP", "RADAR_FRONT"};
  for (int s = 0; s < 4; ++s) {
    add(2, "{\"token\": " + t(sensors[s]) + ", \"channel\": \"" + channels[s] + "\"}");
    add(3, "{\"token\": " + t(20 + s) + ", \"sensor_token\": " + t(sensors[s]) +
               ", \"translation\": [1.7, 0, 1.5], \"rotation\": [0.5, -0.5, 0.5, -0.5], \"camera_intrinsic\": " +
               (s < 2 ? "[[1266.4, 0, 816.2], [0, 1266.4, 491.5], [0, 0, 1]]" : "[]") + "}");
  }
  for (int frame = 0; frame < 2; ++frame) {
    add(1, "{\"token\": " + t(3 + frame) + ", \"scene_token\": " + t(1) +
               ", \"timestamp\": " + std::to_string(1532402927647951 + frame) + "}");
    for (int s = 0; s < 4; ++s)
      add(4, "{\"token\": " + t(32 + 4 * frame + s) + ", \"sample_token\": " + t(3 + frame) +
                 ", \"ego_pose_token\": " + t(40 + frame) + ", \"calibrated_sensor_token\": " + t(20 + s) +
                 ", \"is_key_frame\": " + (s == 3 ? "false" : "true") +
                 ", \"filename\": \"samples/a.jpg\", \"width\": 1600, \"height\": 900}");
    add(5, "{\"token\": " + t(40 + frame) + ", " + car + "}");
  }
  const char* categories[] = {"vehicle.car", "human", "movable_object.barrier"};
  for (int c = 0; c < 3; ++c) {
    add(6, "{\"token\": " + t(50 + c) + ", \"name\": \"" + categories[c] + "\"}");
    add(7, "{\"token\": " + t(60 + c) + ", \"category_token\": " + t(50 + c) + "}");
  }
  for (size_t b = 0; b < boxes.size(); ++b)
    add(8, "{\"token\": " + t(70 + static_cast<int>(b)) + ", \"sample_token\": " + t(3 + static_cast<int>(b % 2)) +
               ", \"instance_token\": " + t(60 + boxes[b].instance) + ", \"translation\": [" + boxes[b].translation +
               "], \"size\": [" + boxes[b].size + "], \"rotation\": [" + boxes[b].rotation + "]}");
  std::string out;
  for (const std::string& text : rows) out += (out.empty() ? "[" : std::string(kTableEnds) + "[") + text + "]";
  return out;
}

std::vector<std::string> scene_seeds() {
  const char* still = "\"translation\": [411.3, 1180.8, 0], \"rotation\": [0.57, 0, 0, 0.8216447]";
  const char* far = "\"translation\": [-1e9, 4e8, 0], \"rotation\": [1, 0, 0, 0]";
  return {scenes_with({{"413.1, 1183.2, 0.8", "1.9, 4.6, 1.7", "0.9238795, 0, 0, 0.3826834", 0},
                       {"409.3, 1175.0, 1.0", "0.6, 0.7, 1.8", "1, 0, 0, 0", 1},
                       {"411.3, 1180.8, 0.8", "400, 300, 2", "0.9, 0, 0, 0.4358899", 0},
                       {"420.0, 1180.8, 0.8", "2, 2, 2", "1, 0, 0, 0", 2}},
                      still),
          scenes_with({{"1e300, -1e300, 0", "1e12, 1e-12, 0", "0.7071068, 0, 0, 0.7071068", 0},
                       {"-1000000002, 400000003, 0", "1e10, 7, -3", "0.8, 0, 0, 0.6", 1}},
                      far),
          scenes_with({}, still)};
}

}  // namespace

std::vector<Target> nuscenes_targets() { return {{"nuscenes", read_scenes, scene_seeds, {}}}; }

}  // namespace redline::fuzz
