// Keeps the latest embeddings of a task: of training, as steps are committed, and of the validation that ran last. What
// a task notes here costs a copy of [B, d] numbers; no extra forward pass is made. Of a large set always the same
// samples are kept (by a hash of their numbers), so that epochs compare and a resumed run keeps the same.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/convnext/embedding/embedding_set.h"
#include "models/convnext/embedding/options.h"
#include "models/convnext/embedding/separation.h"

namespace redline::models::embedding {

// The latest embedding of each sample, at most so many samples: those with the smallest hashes.
class EmbeddingRows {
 public:
  explicit EmbeddingRows(int64_t most) : most_(most) {}
  void add(int64_t id, int64_t label, const float* vector, int64_t width);
  void clear() { rows_.clear(); }
  bool empty() const { return rows_.empty(); }
  EmbeddingSet set() const;  // in the order of the samples' numbers
  void restore(const EmbeddingSet& set);

 private:
  struct Row {
    int64_t id, label;
    std::vector<float> vector;
  };
  int64_t most_;
  std::map<std::pair<uint64_t, int64_t>, Row> rows_;  // by hash and number of the sample
};

class EmbeddingStore {
 public:
  explicit EmbeddingStore(const EmbeddingOptions& options);

  // From loss() in training; counts once committed() is called. Rows with a positive share of another class
  // (`mixed_share`, may be undefined) are of no class and left out.
  void stage(const torch::Tensor& vectors, const torch::Tensor& labels, const std::vector<int64_t>& ids,
             const torch::Tensor& mixed_share = {});
  void begin_attempt() { staged_.clear(); }
  void committed();
  // From loss() in validation, take_validation_sums() and finish_validation(). The last returns metrics ("recall_at_1",
  // ...) where every validation is to be measured, and where nobody monitors (redline eval).
  void add_validation(const torch::Tensor& vectors, const torch::Tensor& labels, const std::vector<int64_t>& ids);
  void take_validation();
  std::map<std::string, double> finish_validation();
  // The embeddings that were taken, as rows that those of other ranks can be put below: vectors, labels, numbers.
  std::vector<torch::Tensor> taken_rows() const;
  void set_taken_rows(const std::vector<torch::Tensor>& rows);

  EmbeddingSet training() const { return training_.set(); }
  const EmbeddingSet& validation() const { return validation_; }
  // Measures and says in the log, once, what could not be.
  std::map<std::string, double> measure(const EmbeddingSet& set, const std::string& part) const;
  void set_monitored() { monitored_ = true; }
  const EmbeddingOptions& options() const { return options_; }

  std::map<std::string, torch::Tensor> state() const;
  void restore(const std::map<std::string, torch::Tensor>& state);

 private:
  EmbeddingOptions options_;
  EmbeddingRows training_, running_;  // running_: the validation that is going on
  std::vector<EmbeddingSet> staged_;
  EmbeddingSet taken_, validation_;
  bool monitored_ = false;
};

}  // namespace redline::models::embedding
