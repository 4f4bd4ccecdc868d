// The rows of what is looked at in embeddings: how often, how many, what is written.
#pragma once

#include <cstdint>
#include <vector>

#include "config/fields.h"

namespace redline::models::embedding {

struct EmbeddingOptions {
  int64_t separation_every_n_epochs = 10, pictures_every_n_epochs = 50;  // 0: never
  int64_t max_samples = 10'000;                                          // of each set that are looked at
  std::vector<int64_t> recall_at{1, 2, 4, 8};
  bool cluster_metrics = true;
  bool separation_on_validation = false;
  bool tsne = true;
  int64_t picture_samples = 2'000;
  double perplexity = 30.0;
  bool save_embeddings = true, projector = true;

  bool looks() const { return separation_every_n_epochs > 0 || pictures_every_n_epochs > 0; }
  static config::Table<EmbeddingOptions> fields();
};

}  // namespace redline::models::embedding
