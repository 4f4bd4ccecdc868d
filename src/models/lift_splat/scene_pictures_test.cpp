#include "models/lift_splat/scene_pictures.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "core/file_ops.h"
#include "models/layers/layer_test_tools.h"
#include "models/lift_splat/scene_monitor.h"
#include "models/lift_splat/task.h"

namespace redline::models::lift_splat {
namespace {

namespace fs = std::filesystem;
using models::testing::wave;

// One camera at the car's middle that looks ahead, with a picture of 64 x 32 and a focal length of 32 pixels.
SceneView one_camera() {
  SceneView scene;
  scene.imgs = wave({1, 3, 32, 64}, 0.1, torch::kFloat32);
  scene.rots = torch::tensor({0.0f, 0.0f, 1.0f, -1.0f, 0.0f, 0.0f, 0.0f, -1.0f, 0.0f}).view({1, 3, 3});
  scene.trans = torch::tensor({0.0f, 0.0f, 1.0f}).view({1, 3});
  scene.intrins = torch::tensor({32.0f, 0.0f, 32.0f, 0.0f, 32.0f, 16.0f, 0.0f, 0.0f, 1.0f}).view({1, 3, 3});
  scene.post_rots = torch::eye(3).unsqueeze(0).contiguous();
  scene.post_trans = torch::zeros({1, 3});
  scene.truth = torch::zeros({1, 16, 16});
  scene.chance = torch::zeros({1, 16, 16});
  return scene;
}

TEST(ScenePictures, LinesLieWhereTheCameraSeesThem) {
  SceneView scene = one_camera();
  const float ahead[3] = {8.0f, 0.0f, 1.0f}, left[3] = {8.0f, 2.0f, 1.0f}, above[3] = {8.0f, 0.0f, 3.0f};
  const auto line = project_line(scene, 0, ahead, left);
  ASSERT_TRUE(line);
  EXPECT_NEAR(line->first.x, 32.0, 1e-4);
  EXPECT_NEAR(line->first.y, 16.0, 1e-4);
  EXPECT_NEAR(line->first.depth, 8.0, 1e-4);
  EXPECT_NEAR(line->second.x, 32.0 - 32.0 * 2.0 / 8.0, 1e-4);  // left of the car is left in the picture
  const auto up = project_line(scene, 0, ahead, above);
  ASSERT_TRUE(up);
  EXPECT_NEAR(up->second.y, 16.0 - 8.0, 1e-4);
  // A picture that was halved, mirrored and moved moves its lines along.
  scene.post_rots = torch::tensor({-0.5f, 0.0f, 0.0f, 0.0f, 0.5f, 0.0f, 0.0f, 0.0f, 1.0f}).view({1, 3, 3});
  scene.post_trans = torch::tensor({40.0f, 3.0f, 0.0f}).view({1, 3});
  const auto moved = project_line(scene, 0, ahead, left);
  ASSERT_TRUE(moved);
  EXPECT_NEAR(moved->first.x, 40.0 - 16.0, 1e-4);
  EXPECT_NEAR(moved->second.x, 40.0 - 12.0, 1e-4);
  EXPECT_NEAR(moved->first.y, 11.0, 1e-4);
}

TEST(ScenePictures, LinesAreCutAtTheCameraAndAtThePicturesEdge) {
  const SceneView scene = one_camera();
  const float ahead[3] = {8.0f, 0.0f, 1.0f}, behind[3] = {-8.0f, 0.0f, 1.0f}, further[3] = {-9.0f, 1.0f, 1.0f},
              far_left[3] = {8.0f, 80.0f, 1.0f}, beside[3] = {8.0f, 90.0f, 1.0f};
  EXPECT_FALSE(project_line(scene, 0, behind, further));
  EXPECT_FALSE(project_line(scene, 0, far_left, beside));
  const auto cut = project_line(scene, 0, ahead, far_left);
  ASSERT_TRUE(cut);
  EXPECT_NEAR(cut->second.x, 0.0, 1e-6);
  EXPECT_NEAR(cut->second.y, 16.0, 1e-4);
  const float near_and_behind[3] = {-8.0f, 4.0f, 1.0f};
  EXPECT_TRUE(project_line(scene, 0, ahead, near_and_behind));
}

TEST(ScenePictures, AnEdgeJoinsCornersThatDifferInOneDirection) {
  const auto corner = [](int k) {
    return std::array<int, 3>{k < 4 ? 1 : 0, k % 4 == 0 || k % 4 == 3 ? 0 : 1, k % 4 < 2 ? 1 : 0};
  };
  EXPECT_EQ(box_edges().size(), 12u);
  for (const auto& [a, b] : box_edges()) {
    int differences = 0;
    for (size_t axis = 0; axis < 3; ++axis) differences += corner(a)[axis] != corner(b)[axis] ? 1 : 0;
    EXPECT_EQ(differences, 1) << a << " " << b;
  }
}

// Width and height of a PNG, from its header.
std::pair<int, int> png_size(const std::string& bytes) {
  const auto number = [&](size_t at) {
    int value = 0;
    for (size_t i = 0; i < 4; ++i) value = value * 256 + static_cast<unsigned char>(bytes[at + i]);
    return value;
  };
  return {number(16), number(20)};
}

TEST(ScenePictures, ShowWhatIsThereAndWhatWasSaid) {
  Options options;
  options.grid.xbound = options.grid.ybound = {-8.0, 8.0, 1.0};
  SceneView scene = one_camera();
  const std::string empty = grid_png(scene, options, "none");
  EXPECT_EQ(png_size(empty), (std::pair{8 + 480 + 8, 40 + 480 + 24}));
  scene.truth[0][3][4] = 1.0f;
  const std::string missed = grid_png(scene, options, "none");
  scene.chance[0][3][4] = 0.9f;
  const std::string found = grid_png(scene, options, "none");
  EXPECT_NE(empty, missed);
  EXPECT_NE(missed, found);
  const std::string without = cameras_png(scene, "cameras");
  EXPECT_EQ(png_size(without), (std::pair{8 + 64 + 8, 40 + 32 + 8}));
  scene.boxes = torch::zeros({4, 8, 3});
  EXPECT_EQ(cameras_png(scene, "cameras"), without) << "zeros are no box";
  scene.boxes[1] = torch::tensor({6.0f,  -1.0f, 2.0f, 6.0f,  1.0f, 2.0f, 6.0f,  1.0f, 0.0f, 6.0f,  -1.0f, 0.0f,
                                  10.0f, -1.0f, 2.0f, 10.0f, 1.0f, 2.0f, 10.0f, 1.0f, 0.0f, 10.0f, -1.0f, 0.0f})
                       .view({8, 3});
  EXPECT_NE(cameras_png(scene, "cameras"), without);
}

TEST(SceneMonitor, DrawsTheStepsItIsAskedFor) {
  SceneStore store(5);
  task::Batch batch;
  batch.sample_ids = {3};
  const SceneView scene = one_camera();
  for (const auto& [name, value] : std::map<std::string, torch::Tensor>{{"imgs", scene.imgs},
                                                                        {"rots", scene.rots},
                                                                        {"trans", scene.trans},
                                                                        {"intrins", scene.intrins},
                                                                        {"post_rots", scene.post_rots},
                                                                        {"post_trans", scene.post_trans},
                                                                        {"binimgs", scene.truth}})
    batch.tensors[name] = value.unsqueeze(0);
  const torch::Tensor logits = torch::full({1, 1, 16, 16}, -3.0f);
  store.note(batch, logits, task::Context(1, 3, true, batch.sample_ids));
  EXPECT_FALSE(store.training());
  store.note(batch, logits, task::Context(1, 4, true, batch.sample_ids));  // the fifth step
  ASSERT_TRUE(store.training());
  batch.tensors["imgs"].zero_();
  EXPECT_GT(store.training()->imgs.abs().max().item<float>(), 0.0f) << "a copy is kept";
  store.note(batch, logits, task::Context(1, -1, false, batch.sample_ids));
  store.note(batch, logits + 9.0, task::Context(1, -1, false, batch.sample_ids));
  ASSERT_TRUE(store.validation());
  EXPECT_LT(store.validation()->chance.max().item<float>(), 0.1f) << "the first batch of a validation is kept";
  store.validation_ended();
  store.note(batch, logits + 9.0, task::Context(1, -1, false, batch.sample_ids));
  EXPECT_GT(store.validation()->chance.max().item<float>(), 0.9f);

  Options options;
  options.grid.xbound = options.grid.ybound = {-8.0, 8.0, 1.0};
  const fs::path folder = fs::temp_directory_path() / ("scene_monitor_" + std::to_string(::getpid()));
  SceneMonitor monitor(options, std::make_shared<SceneStore>(store));
  EXPECT_EQ(monitor.plot_every_steps(), 5);
  const auto files = monitor.plot(5, folder.string());
  EXPECT_EQ(files.size(), 4u);
  for (const std::string& file : files) EXPECT_TRUE(read_file(file).starts_with("\x89PNG")) << file;
  fs::remove_all(folder);
}

}  // namespace
}  // namespace redline::models::lift_splat
