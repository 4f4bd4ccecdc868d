// What training needs of nuScenes' tables, joined: the key frames of the chosen scenes in the order of lift-splat-shoot
// (scene token, then time), each with its cameras, the car's pose at the lidar's time, and its annotations. Rows that
// belong to other scenes or sensors are dropped while they are read, so memory follows what is used, not what is
// stored.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/nuscenes/token.h"

namespace redline::data::nuscenes {

using Vector3 = std::array<double, 3>;
using Quaternion = std::array<double, 4>;  // w, x, y, z

struct Pose {
  Vector3 translation{};
  Quaternion rotation{1, 0, 0, 0};
};

struct Calibration {
  Token token;
  Pose pose;  // of the sensor on the car
  std::array<double, 9> intrinsic{};
};

struct View {
  Token token;
  int32_t calibration = -1;
  int32_t width = 0, height = 0;
  std::string file;
};

struct Annotation {
  Token token;
  Pose pose;             // in the world
  Vector3 size;          // width, length, height
  uint32_t classes = 0;  // bit i: of class i
};

struct KeyFrame {
  Token token, scene;
  int64_t timestamp = 0;
  Pose car;  // where the car was at the lidar's time
  int64_t first_annotation = 0, num_annotations = 0;
};

struct Tables {
  std::vector<std::string> cameras;  // channels
  std::vector<KeyFrame> frames;
  std::vector<View> views;              // [frames][cameras]
  std::vector<Annotation> annotations;  // by frame
  std::vector<Calibration> calibrations;
  const View& view(size_t frame, size_t camera) const { return views[frame * cameras.size() + camera]; }
};

struct TableRequest {
  std::vector<std::string> cameras, classes;
  std::function<bool(std::string_view scene)> wanted;
  int num_threads = 1;
};

// `folder` is the one of the tables, e.g. DATA/v1.0-mini. Throws DataError that names file and token: a table is
// missing, a token has no partner, a frame lacks a camera, a rotation is none.
Tables read_tables(const std::filesystem::path& folder, const TableRequest& request);

}  // namespace redline::data::nuscenes
