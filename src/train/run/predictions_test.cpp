#include "train/run/predictions.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "train/files/safetensors.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

class PredictionFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / ("predictions_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Two batches, padded to 3 and to 5 frames, of two channels.
  static Predictions example() {
    PredictionRows rows;
    const torch::Tensor first = torch::arange(12, torch::kFloat32).view({2, 2, 3}),
                        second = torch::arange(10, torch::kFloat32).view({1, 2, 5}) + 100;
    rows.add({7, 3}, {"a.wav", "b.wav"}, {{"encoded", first}, {"encoded_lengths", torch::tensor({3, 1})}});
    rows.add({9}, {"c.wav"},
             {{"encoded", second}, {"encoded_lengths", torch::tensor({5})}, {"scale", torch::tensor(3.0)}});
    return rows.finish();
  }
  fs::path folder_;
};

TEST_F(PredictionFiles, RowsAreAddedUpWithNamesLengthsAndMeans) {
  const Predictions p = example();
  EXPECT_EQ(p.sample_ids, (std::vector<int64_t>{7, 3, 9}));
  EXPECT_EQ(p.names, (std::vector<std::string>{"a.wav", "b.wav", "c.wav"}));
  EXPECT_EQ(p.outputs.at("encoded").sizes().vec(), (std::vector<int64_t>{3, 2, 5}));
  EXPECT_EQ(p.ragged.at("encoded"), 2);
  EXPECT_EQ(p.outputs.count("scale"), 0u) << "a number of the whole batch is nobody's";
  EXPECT_TRUE(torch::equal(own_rows(p, "encoded", 1), torch::tensor({{6.f}, {9.f}})));
  EXPECT_TRUE(torch::equal(p.outputs.at("encoded_mean"), torch::tensor({{1.f, 4.f}, {6.f, 9.f}, {102.f, 107.f}})));
}

TEST_F(PredictionFiles, WhatHasAsManyChannelsAsFramesIsCutAlongItsLastDimension) {
  PredictionRows rows;
  rows.add({0}, {"x"}, {{"e", torch::arange(9, torch::kFloat32).view({1, 3, 3})}, {"e_lengths", torch::tensor({3})}});
  EXPECT_EQ(rows.finish().ragged.at("e"), 2);
}

TEST_F(PredictionFiles, SafetensorsCarryTheNames) {
  write_predictions(example(), folder_ / "p.safetensors");
  const SafetensorsFile file = read_safetensors(folder_ / "p.safetensors");
  EXPECT_EQ(nlohmann::json::parse(file.metadata.at("names")), (nlohmann::json{"a.wav", "b.wav", "c.wav"}));
  EXPECT_TRUE(torch::equal(file.tensors.at("encoded_lengths"), torch::tensor({3, 1, 5})));
}

TEST_F(PredictionFiles, AnNpyIsTheOneVectorOrTheOneAskedFor) {
  write_predictions(example(), folder_ / "p.npy");
  const std::string bytes = read_file(folder_ / "p.npy");
  EXPECT_EQ(bytes.substr(1, 5), "NUMPY");
  EXPECT_NE(bytes.find("'shape': (3, 2, )"), std::string::npos);
  const size_t header = 10 + static_cast<uint8_t>(bytes[8]) + 256 * static_cast<uint8_t>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  ASSERT_EQ(bytes.size(), header + 6 * sizeof(float));
  float last = 0;
  std::memcpy(&last, bytes.data() + bytes.size() - sizeof(float), sizeof(float));
  EXPECT_EQ(last, 107.0f);
  EXPECT_EQ(read_file(folder_ / "p.names.txt"), "a.wav\nb.wav\nc.wav\n");
  write_predictions(example(), folder_ / "lengths.npy", "encoded_lengths");
  EXPECT_NE(read_file(folder_ / "lengths.npy").find("<i8"), std::string::npos);
  Predictions two = example();
  two.outputs["other"] = torch::zeros({3, 4});
  EXPECT_THROW(write_predictions(two, folder_ / "q.npy"), ConfigError);
}

TEST_F(PredictionFiles, WhatCannotBeWrittenIsSaid) {
  EXPECT_THROW(check_predictions_path("x.csv"), ConfigError);
  EXPECT_THROW(write_predictions(example(), folder_ / "p.parquet", "nothing"), ConfigError);
}

}  // namespace
}  // namespace redline::train
