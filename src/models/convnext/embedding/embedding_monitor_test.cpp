// What a task hands over becomes metrics, pictures and files.
#include "models/convnext/embedding/embedding_monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "core/file_ops.h"
#include "core/own_folder.h"
#include "core/philox.h"
#include "core/safetensors_header.h"
#include "models/convnext/embedding/pictures.h"

namespace redline::models::embedding {
namespace {

namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() : path_(fs::temp_directory_path() / ("embedding_monitor_" + std::to_string(::getpid()))) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

struct BatchOf {
  torch::Tensor vectors, labels;
  std::vector<int64_t> ids;
};

// Rows near one of three corners, by the sample's number.
BatchOf batch_of(int64_t first, int64_t count, double shift = 0.0) {
  BatchOf batch;
  batch.vectors = torch::empty({count, 4});
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < count; ++i) {
    KeyedStream draw(1, 0, static_cast<uint64_t>(first + i), 0);
    labels.push_back((first + i) % 3);
    for (int64_t j = 0; j < 4; ++j)
      batch.vectors[i][j] = shift + 0.2 * draw.normal() + (labels.back() == j ? 3.0 : 0.0);
    batch.ids.push_back(first + i);
  }
  batch.labels = torch::tensor(labels);
  return batch;
}

EmbeddingOptions small_options() {
  EmbeddingOptions options;
  options.max_samples = 100;
  options.perplexity = 5;
  return options;
}

TEST(EmbeddingStore, OnlyCommittedStepsCountAndTheLatestEmbeddingStays) {
  EmbeddingStore store(small_options());
  const BatchOf batch = batch_of(0, 6);
  store.stage(batch.vectors, batch.labels, batch.ids);
  store.begin_attempt();  // given up
  store.committed();
  EXPECT_EQ(store.training().size(), 0);
  store.stage(batch.vectors, batch.labels, batch.ids);
  store.committed();
  const BatchOf later = batch_of(3, 3, 50.0);
  store.stage(later.vectors, later.labels, later.ids);
  store.committed();
  const EmbeddingSet set = store.training();
  EXPECT_EQ(set.ids, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(torch::equal(set.vectors.narrow(0, 0, 3), batch.vectors.narrow(0, 0, 3)));
  EXPECT_TRUE(torch::equal(set.vectors.narrow(0, 3, 3), later.vectors));
}

TEST(EmbeddingStore, StagingKeepsACopy) {
  EmbeddingStore store(small_options());
  BatchOf batch = batch_of(0, 4);
  const torch::Tensor before = batch.vectors.clone();
  store.stage(batch.vectors, batch.labels, batch.ids);
  batch.vectors.zero_();
  store.committed();
  EXPECT_TRUE(torch::equal(store.training().vectors, before));
}

TEST(EmbeddingStore, KeepsTheSameSamplesOfALargeSetInAnyOrder) {
  EmbeddingOptions options = small_options();
  options.max_samples = 40;
  EmbeddingStore forward(options), backward(options);
  for (int64_t i = 0; i < 20; ++i) {
    const BatchOf a = batch_of(10 * i, 10), b = batch_of(190 - 10 * i, 10);
    forward.stage(a.vectors, a.labels, a.ids);
    backward.stage(b.vectors, b.labels, b.ids);
  }
  forward.committed();
  backward.committed();
  EXPECT_EQ(forward.training().size(), 40);
  EXPECT_EQ(forward.training().ids, backward.training().ids);
  EXPECT_TRUE(torch::equal(forward.training().vectors, backward.training().vectors));
}

TEST(EmbeddingStore, MixedRowsAreOfNoClass) {
  EmbeddingStore store(small_options());
  const BatchOf batch = batch_of(0, 4);
  store.stage(batch.vectors, batch.labels, batch.ids, torch::tensor(std::vector<float>{0.0f, 0.3f, 0.0f, 1.0f}));
  store.committed();
  EXPECT_EQ(store.training().ids, (std::vector<int64_t>{0, 2}));
}

TEST(EmbeddingStore, AnAbortedValidationLeavesNothing) {
  EmbeddingStore store(small_options());
  const BatchOf lost = batch_of(50, 5), kept = batch_of(0, 30);
  store.add_validation(lost.vectors, lost.labels, lost.ids);
  store.take_validation();  // what a validation begins with
  store.add_validation(kept.vectors, kept.labels, kept.ids);
  store.take_validation();
  const auto metrics = store.finish_validation();
  EXPECT_EQ(store.validation().ids, kept.ids);
  EXPECT_EQ(metrics.at("recall_at_1"), 1.0) << "nobody monitors, so this is an evaluation";
}

TEST(EmbeddingStore, ResumesWithWhatItHad) {
  EmbeddingStore store(small_options()), resumed(small_options());
  const BatchOf batch = batch_of(0, 20);
  store.stage(batch.vectors, batch.labels, batch.ids);
  store.committed();
  const BatchOf other = batch_of(60, 3);
  resumed.stage(other.vectors, other.labels, other.ids);
  resumed.committed();
  resumed.restore(store.state());
  EXPECT_EQ(resumed.training().ids, store.training().ids);
  EXPECT_EQ(resumed.training().labels, store.training().labels);
  EXPECT_TRUE(torch::equal(resumed.training().vectors, store.training().vectors));
  resumed.restore({});  // a checkpoint from before there was one
  EXPECT_EQ(resumed.training().size(), 0);
}

class MonitorFiles : public ::testing::Test {
 protected:
  void fill(const std::shared_ptr<EmbeddingStore>& store) {
    const BatchOf train = batch_of(0, 60), val = batch_of(100, 30);
    store->stage(train.vectors, train.labels, train.ids);
    store->committed();
    store->add_validation(val.vectors, val.labels, val.ids);
    store->take_validation();
    store->finish_validation();
  }
  Scratch scratch_;
};

TEST_F(MonitorFiles, MetricsOfBothSetsUnderDeclaredNames) {
  const auto store = std::make_shared<EmbeddingStore>(small_options());
  EmbeddingMonitor monitor(store);
  EXPECT_EQ(monitor.update_every_epochs(), 10);
  EXPECT_EQ(monitor.plot_every_epochs(), 50);
  EXPECT_TRUE(monitor.update(1).empty()) << "nothing seen yet";
  fill(store);
  const auto metrics = monitor.update(7);
  EXPECT_EQ(metrics.at("separation/train_recall_at_1"), 1.0);
  EXPECT_GT(metrics.at("separation/val_silhouette"), 0.7);
  std::set<std::string> declared;
  for (const auto& info : EmbeddingMonitor::metrics(small_options())) declared.insert(info.name);
  for (const auto& [name, value] : metrics) EXPECT_TRUE(declared.contains(name)) << name;
  store->take_validation();
  EXPECT_TRUE(store->finish_validation().empty()) << "the monitor measures at its own time";
}

TEST_F(MonitorFiles, PicturesVectorsAndProjector) {
  const auto store = std::make_shared<EmbeddingStore>(small_options());
  EmbeddingMonitor monitor(store);
  fill(store);
  monitor.update(12);
  const std::string plots = (scratch_.path() / "plots").string();
  const std::vector<std::string> files = monitor.plot(12, plots);
  monitor.plot(24, plots);
  ASSERT_EQ(files.size(), 4u);
  for (const std::string& file : files) {
    const std::string bytes = read_file(file, 1 << 24);
    EXPECT_TRUE(bytes.starts_with(file.ends_with(".png") ? "\x89PNG" : "<svg")) << file;
  }
  const std::string svg = read_file(plots + "/embedding_val.svg", 1 << 24);
  EXPECT_NE(svg.find("Embeddings of the validation data, step 24"), std::string::npos);
  EXPECT_NE(svg.find("recall_at_1 1.000"), std::string::npos);
  const std::string saved = read_file(scratch_.path() / "embeddings" / "val_step_00000012.safetensors", 1 << 24);
  const auto length = parse_header_length(
      std::span<const uint8_t, 8>(reinterpret_cast<const uint8_t*>(saved.data()), 8), saved.size(), "");
  const StoredHeader header = parse_stored_header(saved.substr(8, length), saved.size() - 8 - length, "");
  ASSERT_EQ(header.entries.size(), 3u);
  EXPECT_EQ(header.entries[0].shape, (std::vector<int64_t>{30, 4}));
  const std::string list = read_file(scratch_.path() / "tensorboard" / "projector_config.pbtxt", 1 << 20);
  for (const char* words : {"tensor_name: \"val:00012\"", "tensor_path: \"00024/train/tensors.tsv\"",
                            "metadata_path: \"00012/train/metadata.tsv\""})
    EXPECT_NE(list.find(words), std::string::npos) << list;
}

TEST_F(MonitorFiles, WhatIsNotFiniteIsDrawnAsWordsAndTheRunGoesOn) {
  const auto store = std::make_shared<EmbeddingStore>(small_options());
  EmbeddingMonitor monitor(store);
  BatchOf batch = batch_of(0, 20);
  batch.vectors[3][1] = NAN;
  store->stage(batch.vectors, batch.labels, batch.ids);
  store->committed();
  EXPECT_TRUE(monitor.update(5).empty());
  monitor.plot(5, (scratch_.path() / "plots").string());
  EXPECT_NE(read_file(scratch_.path() / "plots" / "embedding_train.svg", 1 << 24).find("not finite"),
            std::string::npos);
}

TEST(EmbeddingPictures, ShowsEveryPointOfASmallSetAndSomeOfALargeOne) {
  const BatchOf batch = batch_of(0, 90);
  EmbeddingSet set{
      batch.vectors, {batch.labels.const_data_ptr<int64_t>(), batch.labels.const_data_ptr<int64_t>() + 90}, batch.ids};
  const auto dots = [](const std::string& svg) {
    size_t count = 0;
    for (size_t at = svg.find("<circle"); at != std::string::npos; at = svg.find("<circle", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(dots(picture_svg(make_picture(set, 1000, 10, true))), 2 * 90 + 3u);
  EXPECT_EQ(dots(picture_svg(make_picture(set, 40, 10, true))), 2 * 40 + 3u);
  EXPECT_EQ(dots(picture_svg(make_picture(set, 40, 10, false))), 40 + 3u);
}

}  // namespace
}  // namespace redline::models::embedding
