// How well embeddings separate their classes, by Euclidean distances of the vectors as they are (a head that normalises
// hands over unit vectors): silhouette (Rousseeuw 1987), Davies-Bouldin (1979) and Calinski-Harabasz (1974) as
// scikit-learn defines them, the ratio of mean distances within and between classes, recall@k, mAP@R (Musgrave et al.
// 2020) and NMI of k-means. One pass over all pairs, block by block: 100,000 vectors need some hundred megabytes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/convnext/embedding/embedding_set.h"

namespace redline::models::embedding {

struct SeparationOptions {
  std::vector<int64_t> recall_at{1, 2, 4, 8};
  bool clusters = true;         // NMI, which needs k-means
  int64_t kmeans_restarts = 3;  // the best of so many
  uint64_t seed = 0;            // of k-means
};

// What could not be computed is absent, and `notes` say why, a sentence each: a set with one class is no reason to end
// a training run.
struct Separation {
  std::optional<double> silhouette, davies_bouldin, calinski_harabasz, intra_inter_ratio, map_at_r, nmi;
  std::map<int64_t, double> recall;  // by k
  std::vector<std::string> notes;

  // By name: "silhouette", ..., "recall_at_1".
  std::map<std::string, double> metrics() const;
};

Separation measure_separation(const EmbeddingSet& set, const SeparationOptions& options = {});

struct SeparationMetric {
  std::string name, sentence;
};
// The names that metrics() may have.
std::vector<SeparationMetric> separation_metrics(const std::vector<int64_t>& recall_at);

}  // namespace redline::models::embedding
