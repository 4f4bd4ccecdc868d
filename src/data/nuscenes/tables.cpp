#include "data/nuscenes/tables.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/strings.h"
#include "data/nuscenes/table_reader.h"

namespace redline::data::nuscenes {

namespace {

constexpr double kUnitSlack = 1e-3;  // of a quaternion's length

// Where a token stands in a list, by a sorted copy of the tokens.
class TokenIndex {
 public:
  TokenIndex() = default;
  template <class Rows>
  explicit TokenIndex(const Rows& rows) {
    entries_.reserve(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) entries_.push_back({rows[i].token, static_cast<int32_t>(i)});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.token < b.token; });
  }
  int32_t find(const Token& token) const {
    const auto it = std::lower_bound(entries_.begin(), entries_.end(), token,
                                     [](const Entry& entry, const Token& wanted) { return entry.token < wanted; });
    return it != entries_.end() && it->token == token ? it->row : -1;
  }

 private:
  struct Entry {
    Token token;
    int32_t row;
  };
  std::vector<Entry> entries_;
};

struct Named {
  Token token;
  int64_t value = 0;  // what the table says, as a number
};

[[noreturn]] void no_partner(const TableRow& row, const char* field, const Token& token, const char* table) {
  row.fail(std::string("its ") + field + " " + token.text() + " has no row in " + table + ".json.");
}

Pose read_pose(const TableRow& row, size_t translation, size_t rotation) {
  Pose pose;
  row.numbers(translation, pose.translation.data(), 3);
  row.numbers(rotation, pose.rotation.data(), 4);
  double squares = 0.0;
  for (double q : pose.rotation) squares += q * q;
  if (!(std::abs(std::sqrt(squares) - 1.0) <= kUnitSlack))
    row.fail("its rotation has the length " + format_double(std::sqrt(squares)) +
             "; a quaternion of length 1 was expected (w, x, y, z).");
  return pose;
}

class Reader {
 public:
  Reader(const std::filesystem::path& folder, const TableRequest& request) : folder_(folder), request_(request) {
    tables_.cameras = request.cameras;
  }

  Tables read() {
    read_frames();
    read_calibrations();
    read_views();
    read_poses();
    read_annotations();
    return std::move(tables_);
  }

 private:
  template <class T, class Keep>
  std::vector<T> table(const char* name, const std::vector<std::string>& columns, const Keep& keep) const {
    const std::filesystem::path file = folder_ / (std::string(name) + ".json");
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored))
      throw DataError("The nuScenes table " + printable(file.string()) +
                      " is missing; a data set's folder holds all tables of its version.");
    return read_table<T>(file, columns, request_.num_threads, keep);
  }

  void read_frames() {
    const auto scenes = table<Named>("scene", {"token", "name"}, [&](const TableRow& row) -> std::optional<Named> {
      return Named{row.token(0), request_.wanted(row.text(1)) ? 1 : 0};
    });
    const TokenIndex scene_index(scenes);
    tables_.frames = table<KeyFrame>("sample", {"token", "scene_token", "timestamp"},
                                     [&](const TableRow& row) -> std::optional<KeyFrame> {
                                       KeyFrame frame;
                                       frame.scene = row.token(1);
                                       const int32_t scene = scene_index.find(frame.scene);
                                       if (scene < 0) no_partner(row, "scene_token", frame.scene, "scene");
                                       if (scenes[static_cast<size_t>(scene)].value == 0) return std::nullopt;
                                       frame.token = row.token(0);
                                       frame.timestamp = row.integer(2);
                                       return frame;
                                     });
    std::sort(tables_.frames.begin(), tables_.frames.end(), [](const KeyFrame& a, const KeyFrame& b) {
      return std::tie(a.scene, a.timestamp, a.token) < std::tie(b.scene, b.timestamp, b.token);
    });
    frame_index_ = TokenIndex(tables_.frames);
  }

  // Channels are numbered: cameras as asked for, then the lidar.
  void read_calibrations() {
    const auto lidar = static_cast<int64_t>(request_.cameras.size());
    const auto sensors = table<Named>("sensor", {"token", "channel"}, [&](const TableRow& row) -> std::optional<Named> {
      const std::string_view channel = row.text(1);
      const auto it = std::find(request_.cameras.begin(), request_.cameras.end(), channel);
      const int64_t number = it != request_.cameras.end() ? it - request_.cameras.begin()
                             : channel == "LIDAR_TOP"     ? lidar
                                                          : int64_t{-1};
      return Named{row.token(0), number};
    });
    const TokenIndex sensor_index(sensors);
    struct Row {
      Calibration calibration;
      int64_t channel;
    };
    const auto rows =
        table<Row>("calibrated_sensor", {"token", "sensor_token", "translation", "rotation", "camera_intrinsic"},
                   [&](const TableRow& row) -> std::optional<Row> {
                     const int32_t sensor = sensor_index.find(row.token(1));
                     if (sensor < 0) no_partner(row, "sensor_token", row.token(1), "sensor");
                     Row out{{}, sensors[static_cast<size_t>(sensor)].value};
                     out.calibration.token = row.token(0);
                     if (out.channel < 0) return out;
                     out.calibration.pose = read_pose(row, 2, 3);
                     if (out.channel < lidar) row.numbers(4, out.calibration.intrinsic.data(), 9);
                     return out;
                   });
    for (const Row& row : rows) {
      tables_.calibrations.push_back(row.calibration);
      channel_of_.push_back(row.channel);
    }
    calibration_index_ = TokenIndex(tables_.calibrations);
  }

  void read_views() {
    const size_t cameras = request_.cameras.size();
    struct Row {
      View view;
      int32_t frame;
      int64_t channel;
      Token pose;
    };
    const auto rows =
        table<Row>("sample_data",
                   {"token", "sample_token", "ego_pose_token", "calibrated_sensor_token", "is_key_frame", "filename",
                    "width", "height"},
                   [&](const TableRow& row) -> std::optional<Row> {
                     if (!row.flag(4)) return std::nullopt;
                     Row out{};
                     out.frame = frame_index_.find(row.token(1));
                     if (out.frame < 0) return std::nullopt;  // of a scene that is not wanted
                     out.view.calibration = calibration_index_.find(row.token(3));
                     if (out.view.calibration < 0)
                       no_partner(row, "calibrated_sensor_token", row.token(3), "calibrated_sensor");
                     out.channel = channel_of_[static_cast<size_t>(out.view.calibration)];
                     if (out.channel < 0) return std::nullopt;
                     out.view.token = row.token(0);
                     out.pose = row.token(2);
                     if (out.channel < static_cast<int64_t>(cameras)) {
                       out.view.file = row.text(5);
                       out.view.width = static_cast<int32_t>(std::clamp<int64_t>(row.integer(6), 0, 1 << 20));
                       out.view.height = static_cast<int32_t>(std::clamp<int64_t>(row.integer(7), 0, 1 << 20));
                     }
                     return out;
                   });
    tables_.views.resize(tables_.frames.size() * cameras);
    pose_of_.assign(tables_.frames.size(), {});
    std::vector<bool> has_lidar(tables_.frames.size(), false);
    for (const Row& row : rows) {
      const auto frame = static_cast<size_t>(row.frame), channel = static_cast<size_t>(row.channel);
      if (channel == cameras) {
        pose_of_[frame] = {row.pose, row.view.token};
        has_lidar[frame] = true;
      } else {
        tables_.views[frame * cameras + channel] = row.view;
      }
    }
    for (size_t frame = 0; frame < tables_.frames.size(); ++frame) {
      for (size_t c = 0; c < cameras; ++c)
        if (tables_.views[frame * cameras + c].calibration < 0) lacks(frame, request_.cameras[c]);
      if (!has_lidar[frame]) lacks(frame, "LIDAR_TOP");
    }
  }

  [[noreturn]] void lacks(size_t frame, const std::string& channel) const {
    throw DataError(printable((folder_ / "sample_data.json").string()) + ": the sample " +
                    tables_.frames[frame].token.text() + " has no key frame of " + printable(channel) +
                    "; leave out its scene, or the camera (model.nuscenes.cams).");
  }

  void read_poses() {
    struct Wanted {
      Token token;
      size_t frame;
    };
    std::vector<Wanted> wanted;
    for (size_t frame = 0; frame < pose_of_.size(); ++frame) wanted.push_back({pose_of_[frame].pose, frame});
    std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) { return a.token < b.token; });
    const auto range = [&](const Token& token) {
      return std::equal_range(wanted.begin(), wanted.end(), Wanted{token, 0},
                              [](const Wanted& a, const Wanted& b) { return a.token < b.token; });
    };
    struct Row {
      Token token;
      Pose pose;
    };
    const auto rows =
        table<Row>("ego_pose", {"token", "translation", "rotation"}, [&](const TableRow& row) -> std::optional<Row> {
          const Token token = row.token(0);
          if (const auto [first, last] = range(token); first == last) return std::nullopt;
          return Row{token, read_pose(row, 1, 2)};
        });
    std::vector<bool> found(tables_.frames.size(), false);
    for (const Row& row : rows) {
      const auto [first, last] = range(row.token);
      for (auto it = first; it != last; ++it) {
        tables_.frames[it->frame].car = row.pose;
        found[it->frame] = true;
      }
    }
    for (size_t frame = 0; frame < found.size(); ++frame)
      if (!found[frame])
        throw DataError(printable((folder_ / "sample_data.json").string()) + ": the row with token " +
                        pose_of_[frame].sample_data.text() + " names the ego_pose_token " +
                        pose_of_[frame].pose.text() + ", which has no row in ego_pose.json.");
  }

  uint32_t classes_of(std::string_view category) const {
    uint32_t bits = 0;
    for (size_t c = 0; c < request_.classes.size(); ++c) {
      const std::string& name = request_.classes[c];
      if (starts_with(category, name) && (category.size() == name.size() || category[name.size()] == '.'))
        bits |= uint32_t{1} << c;
    }
    return bits;
  }

  void read_annotations() {
    const auto categories =
        table<Named>("category", {"token", "name"}, [&](const TableRow& row) -> std::optional<Named> {
          return Named{row.token(0), classes_of(row.text(1))};
        });
    const TokenIndex category_index(categories);
    const auto instances =
        table<Named>("instance", {"token", "category_token"}, [&](const TableRow& row) -> std::optional<Named> {
          const int32_t category = category_index.find(row.token(1));
          if (category < 0) no_partner(row, "category_token", row.token(1), "category");
          return Named{row.token(0), categories[static_cast<size_t>(category)].value};
        });
    const TokenIndex instance_index(instances);
    struct Row {
      Annotation annotation;
      int32_t frame;
    };
    auto rows =
        table<Row>("sample_annotation", {"token", "sample_token", "instance_token", "translation", "size", "rotation"},
                   [&](const TableRow& row) -> std::optional<Row> {
                     Row out{};
                     out.frame = frame_index_.find(row.token(1));
                     if (out.frame < 0) return std::nullopt;
                     const int32_t instance = instance_index.find(row.token(2));
                     if (instance < 0) no_partner(row, "instance_token", row.token(2), "instance");
                     out.annotation.classes = static_cast<uint32_t>(instances[static_cast<size_t>(instance)].value);
                     if (out.annotation.classes == 0) return std::nullopt;
                     out.annotation.token = row.token(0);
                     out.annotation.pose = read_pose(row, 3, 5);
                     row.numbers(4, out.annotation.size.data(), 3);
                     return out;
                   });
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.frame < b.frame; });
    tables_.annotations.reserve(rows.size());
    size_t at = 0;
    for (size_t frame = 0; frame < tables_.frames.size(); ++frame) {
      tables_.frames[frame].first_annotation = static_cast<int64_t>(at);
      for (; at < rows.size() && rows[at].frame == static_cast<int32_t>(frame); ++at)
        tables_.annotations.push_back(rows[at].annotation);
      tables_.frames[frame].num_annotations = static_cast<int64_t>(at) - tables_.frames[frame].first_annotation;
    }
  }

  struct LidarPose {
    Token pose, sample_data;
  };
  std::filesystem::path folder_;
  const TableRequest& request_;
  Tables tables_;
  TokenIndex frame_index_, calibration_index_;
  std::vector<int64_t> channel_of_;  // of each calibration; -1: not wanted
  std::vector<LidarPose> pose_of_;   // of each frame
};

}  // namespace

Tables read_tables(const std::filesystem::path& folder, const TableRequest& request) {
  return Reader(folder, request).read();
}

}  // namespace redline::data::nuscenes
