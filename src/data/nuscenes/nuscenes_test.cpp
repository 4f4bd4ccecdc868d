// Generated scenes through tables, source and camera transform; what is wrong with a data set is named.
#include "data/nuscenes.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "data/nuscenes/camera_transform.h"
#include "data/nuscenes/nuscenes_source.h"
#include "data/nuscenes/scene_splits.h"
#include "data/nuscenes/table_reader.h"
#include "data/synth.h"

namespace redline::data::nuscenes {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class Nuscenes : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("nuscenes_test_" + std::to_string(::getpid()));
    fs::remove_all(folder_);
    SynthConfig config;
    config.kind = "nuscenes";
    config.num = 3;
    config.num_validation = 2;
    config.seed = 5;
    config.camera_width = 160;
    config.camera_height = 90;
    synthesize(config, folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path table(const std::string& name) const { return folder_ / "v1.0-mini" / (name + ".json"); }
  Json rows(const std::string& name) const { return Json::parse(read_file(table(name))); }
  void write(const std::string& name, const Json& content) const { write_file_atomic(table(name), content.dump()); }

  TableRequest request() const { return {NuscenesOptions().cams, {"vehicle"}, scenes_of("mini_train"), 2}; }
  Tables read() const { return read_tables(folder_ / "v1.0-mini", request()); }
  std::string complaint() const {
    try {
      read();
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  Sample sample(int64_t index, bool training, uint64_t epoch) const {
    NuscenesSource source(folder_, read(), LabelGrid({-48, 48, 2}, {-48, 48, 2}, 1));
    measure::StageClock clock(1);
    Sample out = std::get<Sample>(source.read(index, clock.slot(0)));
    out.id = index;
    transform(training).apply(out, {9, epoch});
    return out;
  }
  static CameraTransform transform(bool training) {
    CameraTransform::Settings settings;
    settings.height = 32;
    settings.width = 64;
    settings.training = training;
    settings.options.resize_lim = {0.4, 0.5};
    return CameraTransform(settings);
  }
  fs::path folder_;
};

TEST_F(Nuscenes, JoinsTheKeyFramesOfASplitInTheOrderOfSceneAndTime) {
  const Tables tables = read();
  ASSERT_EQ(tables.frames.size(), 3u);
  ASSERT_EQ(tables.views.size(), 18u);
  for (size_t i = 1; i < 3; ++i) EXPECT_LE(tables.frames[i - 1].scene, tables.frames[i].scene);
  int64_t vehicles = 0;
  std::map<std::string, std::string> category;
  for (const Json& row : rows("category")) category[row["token"]] = row["name"];
  std::map<std::string, bool> is_vehicle;
  for (const Json& row : rows("instance"))
    is_vehicle[row["token"]] = category[row["category_token"]].starts_with("vehicle.");
  std::map<std::string, bool> wanted;
  for (const KeyFrame& frame : tables.frames) wanted[frame.token.text()] = true;
  for (const Json& row : rows("sample_annotation"))
    if (wanted.count(row["sample_token"]) != 0 && is_vehicle[row["instance_token"]]) ++vehicles;
  EXPECT_EQ(static_cast<int64_t>(tables.annotations.size()), vehicles);
  EXPECT_GT(vehicles, 0);
  EXPECT_EQ(tables.view(1, 1).file.find("samples/CAM_FRONT/"), 0u);
  TableRequest one = request();
  one.num_threads = 1;
  EXPECT_EQ(read_tables(folder_ / "v1.0-mini", one).frames[2].token, tables.frames[2].token);
}

TEST_F(Nuscenes, SamplesHaveTheShapesAndDrawsThatBelongToThem) {
  const Sample fixed = sample(0, false, 0), again = sample(0, false, 7);
  EXPECT_EQ(fixed.find("imgs")->shape(), (Shape{6, 3, 32, 64}));
  EXPECT_EQ(fixed.find("binimgs")->shape(), (Shape{1, 48, 48}));
  EXPECT_EQ(fixed.find("view_sizes"), nullptr);
  const auto same = [](const Sample& a, const Sample& b, const char* name) {
    const auto x = a.find(name)->as<float>(), y = b.find(name)->as<float>();
    return std::equal(x.begin(), x.end(), y.begin(), y.end());
  };
  EXPECT_TRUE(same(fixed, again, "imgs"));
  const Sample first = sample(0, true, 0), repeated = sample(0, true, 0), next = sample(0, true, 1);
  EXPECT_EQ(first.find("imgs")->shape(), (Shape{5, 3, 32, 64})) << "five of the six cameras";
  EXPECT_EQ(first.find("rots")->shape(), (Shape{5, 3, 3}));
  EXPECT_TRUE(same(first, repeated, "imgs") && same(first, repeated, "post_rots"));
  EXPECT_FALSE(same(first, next, "post_rots"));
  EXPECT_TRUE(same(first, next, "binimgs"));
}

TEST_F(Nuscenes, MatricesSayWherePixelsWent) {
  // Validation: 160 x 90 to 64 x 32 takes the larger factor, 0.4: 64 x 36, cut at int(0.89 * 36) - 32 = 0.
  const CameraDraw fixed = transform(false).draw(160, 90, nullptr);
  EXPECT_EQ(fixed.width, 64);
  EXPECT_EQ(fixed.height, 36);
  EXPECT_EQ(fixed.left, 0);
  EXPECT_EQ(fixed.top, 0);
  CameraDraw turned{0.5, 80, 45, 10, 7, true, 90.0};
  const CameraMatrices m = camera_matrices(turned, 32, 64);
  // (20, 30) -> resized (10, 15) -> cropped (0, 8) -> flipped (64, 8) -> a quarter turn about (32, 16): (24, -16).
  const float x = m.rotation[0] * 20 + m.rotation[1] * 30 + m.translation[0];
  const float y = m.rotation[3] * 20 + m.rotation[4] * 30 + m.translation[1];
  EXPECT_NEAR(x, 24.0f, 1e-4);
  EXPECT_NEAR(y, -16.0f, 1e-4);
}

TEST_F(Nuscenes, WhatIsWrongIsNamed) {
  const Json data = rows("sample_data"), calibrations = rows("calibrated_sensor"), poses = rows("ego_pose");
  Json changed = data;
  changed[0]["calibrated_sensor_token"] = std::string(32, 'f');
  write("sample_data", changed);
  EXPECT_NE(complaint().find(data[0]["token"].get<std::string>()), std::string::npos) << complaint();
  EXPECT_NE(complaint().find("calibrated_sensor.json"), std::string::npos);
  changed = data;
  changed.erase(changed.begin());  // a camera of the first sample
  write("sample_data", changed);
  EXPECT_NE(complaint().find("has no key frame of CAM_"), std::string::npos) << complaint();
  changed = data;
  changed[0]["token"] = "short";
  write("sample_data", changed);
  EXPECT_NE(complaint().find("32 hexadecimal digits"), std::string::npos) << complaint();
  changed[0]["token"] = std::string(100'000, 'f');
  write("sample_data", changed);
  EXPECT_NE(complaint().find("ffff..."), std::string::npos);
  EXPECT_LT(complaint().size(), 1000u) << "a sentence, whatever the table holds";
  write("sample_data", data);
  changed = calibrations;
  changed[0]["rotation"] = Json{1.0, 1.0, 0.0, 0.0};
  write("calibrated_sensor", changed);
  EXPECT_NE(complaint().find("calibrated_sensor.json"), std::string::npos);
  EXPECT_NE(complaint().find("length 1 was expected"), std::string::npos) << complaint();
  write("calibrated_sensor", calibrations);
  write("ego_pose", Json::array());
  EXPECT_NE(complaint().find("ego_pose.json"), std::string::npos) << complaint();
  write("ego_pose", poses);
  fs::remove(table("instance"));
  EXPECT_NE(complaint().find("instance.json"), std::string::npos) << complaint();
}

TEST_F(Nuscenes, AnEmptyListOfAnnotationsIsAnEmptyMap) {
  write("sample_annotation", Json::array());
  const Sample empty = sample(0, false, 0);
  for (float value : empty.find("binimgs")->as<float>()) ASSERT_EQ(value, 0.0f);
}

TEST_F(Nuscenes, BoxesStandOnTheirCellsNearestFirst) {
  const Tables tables = read();
  const KeyFrame& frame = tables.frames[0];
  ASSERT_GT(frame.num_annotations, 1);
  const Array boxes = box_corners(tables, frame, frame.num_annotations + 1);
  const auto values = boxes.as<float>();
  double before = 0.0;
  for (int64_t i = 0; i < frame.num_annotations; ++i) {
    const float* corner = values.data() + 24 * i;
    double x = 0, y = 0;
    for (int k = 0; k < 8; ++k)
      x += static_cast<double>(corner[3 * k]) / 8, y += static_cast<double>(corner[3 * k + 1]) / 8;
    EXPECT_GE(std::hypot(x, y) + 1e-4, before);
    before = std::hypot(x, y);
    // Edges of a face are as long as the box is wide and high.
    const double wide = std::hypot(corner[3] - corner[0], corner[4] - corner[1]),
                 high = static_cast<double>(corner[5] - corner[8]);
    const bool known = std::any_of(tables.annotations.begin(), tables.annotations.end(), [&](const Annotation& box) {
      return std::fabs(box.size[0] - wide) < 1e-3 && std::fabs(box.size[2] - high) < 1e-3;
    });
    EXPECT_TRUE(known) << i;
    // The cell under the middle is occupied.
    const Array map = label_map(tables, frame, LabelGrid({-48, 48, 2}, {-48, 48, 2}, 1));
    if (std::fabs(x) < 44 && std::fabs(y) < 44) {
      const auto row = static_cast<int64_t>(std::nearbyint((x + 48) / 2)),
                 column = static_cast<int64_t>(std::nearbyint((y + 48) / 2));
      EXPECT_EQ(map.as<float>()[static_cast<size_t>(row * 48 + column)], 1.0f) << x << " " << y;
    }
  }
  for (size_t i = static_cast<size_t>(24 * frame.num_annotations); i < values.size(); ++i) EXPECT_EQ(values[i], 0.0f);
}

TEST_F(Nuscenes, LostAndWrongPicturesAreBadSamples) {
  const Tables tables = read();
  const View view = tables.view(1, 2);
  NuscenesSource source(folder_, tables, LabelGrid({-48, 48, 2}, {-48, 48, 2}, 1));
  measure::StageClock clock(1);
  fs::copy_file(folder_ / tables.view(1, 1).file, folder_ / "kept.jpg");
  fs::remove(folder_ / view.file);
  ReadResult lost = source.read(1, clock.slot(0));
  ASSERT_TRUE(std::holds_alternative<BadSample>(lost));
  EXPECT_NE(std::get<BadSample>(lost).name.find(view.token.text()), std::string::npos);
  SynthConfig config;
  config.kind = "nuscenes";
  config.num = config.num_validation = 1;
  config.camera_width = 80;
  config.camera_height = 64;
  synthesize(config, folder_ / "other");
  const Tables small = read_tables(folder_ / "other/v1.0-mini", request());
  fs::copy_file(folder_ / "other" / small.view(0, 2).file, folder_ / view.file);
  ReadResult wrong = source.read(1, clock.slot(0));
  ASSERT_TRUE(std::holds_alternative<BadSample>(wrong));
  EXPECT_NE(std::get<BadSample>(wrong).reason.find("80 x 64"), std::string::npos) << std::get<BadSample>(wrong).reason;
}

TEST(SceneSplits, AreTheOfficialOnes) {
  EXPECT_TRUE(scenes_of("mini_val")("scene-0103"));
  EXPECT_FALSE(scenes_of("mini_val")("scene-0061"));
  int train = 0, val = 0, both = 0;
  const auto in_train = scenes_of("train"), in_val = scenes_of("val");
  for (int i = 0; i < 1200; ++i) {
    char name[16];
    std::snprintf(name, sizeof(name), "scene-%04d", i);
    train += in_train(name), val += in_val(name), both += in_train(name) && in_val(name);
  }
  EXPECT_EQ(train, 700);
  EXPECT_EQ(val, 150);
  EXPECT_EQ(both, 0);
  EXPECT_TRUE(scenes_of("scene-0001, scene-0002")("scene-0002"));
  EXPECT_THROW(scenes_of("trian"), ConfigError);
}

TEST(TableReader, ReadsAnyLayoutAndNamesWhatIsNoTable) {
  const fs::path file = fs::path(testing::TempDir()) / ("table_" + std::to_string(::getpid()) + ".json");
  const auto names = [&](const std::string& text) {
    write_file_atomic(file, text);
    return read_table<std::string>(file, {"name", "list"}, 2, [](const TableRow& row) -> std::optional<std::string> {
      double pair[2];
      row.numbers(1, pair, 2);
      return std::string(row.text(0)) + "/" + std::to_string(static_cast<int>(pair[0] + pair[1]));
    });
  };
  EXPECT_TRUE(names("[]").empty());
  EXPECT_EQ(
      names(" [ {\"list\":[1,2],\"x\":{\"y\":[\"}\"]},\"name\":\"a}\\\"]\"}\n,\n{\"name\":\"b\",\"list\":[[3],[4.0]]} "
            "]\n"),
      (std::vector<std::string>{"a}\"]/3", "b/7"}));
  std::string large = "[";
  for (int i = 0; i < 60000; ++i)
    large += (i == 0 ? "" : ", ") + std::string("{\"name\": \"") + std::string(100, 'n') + std::to_string(i) +
             "\", \"list\": [1, " + std::to_string(i) + "]}";
  const auto many = names(large + "]");
  ASSERT_EQ(many.size(), 60000u);
  EXPECT_EQ(many[59999].substr(100), "59999/60000") << "in the order of the file, over several blocks";
  for (const char* bad :
       {"", "{}", "[", "[{\"name\": \"a\", \"list\": [1, 2]}", "[1]", "[{\"name\"}]",
        "[{\"name\": 1, \"list\": [1, 2]}]", "[{\"list\": [1, 2]}]", "[{\"name\": \"a\", \"list\": [1]}]", "[] x"})
    EXPECT_THROW(names(bad), DataError) << bad;
  EXPECT_THROW(names("[{\"x\": " + std::string(100, '[') + std::string(100, ']') + "}]"), DataError);
  fs::remove(file);
}

}  // namespace
}  // namespace redline::data::nuscenes
