// Looks at the embeddings every so many epochs: separation metrics of the training's and the validation's, pictures,
// saved vectors and TensorBoard's projector files. Its time is the Monitor phase.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/convnext/embedding/embedding_store.h"
#include "task/task.h"

namespace redline::models::embedding {

class EmbeddingMonitor : public task::Monitor {
 public:
  explicit EmbeddingMonitor(std::shared_ptr<EmbeddingStore> store);

  int64_t update_every_steps() const override { return 0; }
  int64_t plot_every_steps() const override { return 0; }
  int64_t update_every_epochs() const override { return store_->options().separation_every_n_epochs; }
  int64_t plot_every_epochs() const override { return store_->options().pictures_every_n_epochs; }
  // "separation/train_silhouette", "separation/val_recall_at_1", ...
  std::map<std::string, double> update(int64_t step) override;
  std::vector<std::string> found() const override { return found_; }
  // embedding_train.png and .svg, the same of val; beside `directory` embeddings/ and tensorboard/.
  std::vector<std::string> plot(int64_t step, const std::string& directory) override;
  std::map<std::string, torch::Tensor> state_tensors() const override { return store_->state(); }
  void load_state_tensors(const std::map<std::string, torch::Tensor>& state) override { store_->restore(state); }

  // What update() gives, and what a validation does ("recall_at_1").
  static std::vector<task::MetricInfo> metrics(const EmbeddingOptions& options);

 private:
  std::shared_ptr<EmbeddingStore> store_;
  std::vector<std::string> found_;
  std::map<std::string, std::string> captions_;  // of the latest metrics, by part
};

}  // namespace redline::models::embedding
