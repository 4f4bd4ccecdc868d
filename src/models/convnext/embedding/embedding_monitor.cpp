#include "models/convnext/embedding/embedding_monitor.h"

#include <fmt/format.h>

#include <filesystem>

#include "core/file_ops.h"
#include "core/log.h"
#include "models/convnext/embedding/pictures.h"
#include "models/convnext/embedding/projector.h"

namespace redline::models::embedding {

namespace {

struct PartName {
  const char *key, *word;
};
constexpr PartName kTraining{"train", "training"}, kValidation{"val", "validation"};

EmbeddingSet set_of(const EmbeddingStore& store, const PartName& part) {
  return part.key == kTraining.key ? store.training() : store.validation();
}

}  // namespace

EmbeddingMonitor::EmbeddingMonitor(std::shared_ptr<EmbeddingStore> store) : store_(std::move(store)) {
  store_->set_monitored();
}

std::map<std::string, double> EmbeddingMonitor::update(int64_t) {
  std::map<std::string, double> all;
  found_.clear();
  for (const PartName& part : {kTraining, kValidation}) {
    const EmbeddingSet set = set_of(*store_, part);
    if (set.size() == 0) {
      if (part.key == kTraining.key)
        log_warning_once(
            "No embedding of the training data is of one class: mixup and cutmix mixed all of them, so their "
            "separation "
            "is not measured.");
      continue;
    }
    const auto metrics = store_->measure(set, part.word);
    for (const auto& [name, value] : metrics) all[fmt::format("separation/{}_{}", part.key, name)] = value;
    std::string& caption = captions_[part.key];
    caption = fmt::format("{} embeddings", set.size());
    for (const auto& [name, value] : metrics)
      if (name == "silhouette" || name == "recall_at_1" || name == "map_at_r")
        caption += fmt::format(", {} {:.3f}", name, value);
    found_.push_back(fmt::format("{}: {}", part.word, caption));
  }
  return all;
}

std::vector<std::string> EmbeddingMonitor::plot(int64_t step, const std::string& directory) {
  const std::filesystem::path folder = directory, run = folder.parent_path();
  const EmbeddingOptions& options = store_->options();
  std::filesystem::create_directories(folder);
  std::vector<std::string> files;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    write_file_atomic(folder / name, bytes);
    files.push_back((folder / name).string());
  };
  for (const PartName& part : {kTraining, kValidation}) {
    const EmbeddingSet set = set_of(*store_, part);
    if (set.size() == 0) continue;
    EmbeddingPicture picture = make_picture(set, options.picture_samples, options.perplexity, options.tsne);
    picture.title = fmt::format("Embeddings of the {} data, step {}", part.word, step);
    picture.caption = captions_[part.key];
    write(fmt::format("embedding_{}.svg", part.key), picture_svg(picture));
    write(fmt::format("embedding_{}.png", part.key), picture_png(picture));
    if (options.save_embeddings)
      save_embeddings(run / "embeddings" / fmt::format("{}_step_{:08d}.safetensors", part.key, step), set);
    if (options.projector) write_projector(run / "tensorboard", step, part.key, set);
  }
  return files;
}

std::vector<task::MetricInfo> EmbeddingMonitor::metrics(const EmbeddingOptions& options) {
  std::vector<task::MetricInfo> list;
  for (const SeparationMetric& metric : separation_metrics(options.recall_at)) {
    list.push_back({metric.name, "", metric.sentence});
    for (const PartName& part : {kTraining, kValidation})
      list.push_back({fmt::format("separation/{}_{}", part.key, metric.name), "",
                      fmt::format("{} Of the {} data, every separation_every_n_epochs.", metric.sentence, part.word)});
  }
  return list;
}

}  // namespace redline::models::embedding
