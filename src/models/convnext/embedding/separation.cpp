#include "models/convnext/embedding/separation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "models/convnext/embedding/centroids.h"
#include "models/convnext/embedding/class_order.h"
#include "models/convnext/embedding/distance_rows.h"
#include "models/convnext/embedding/kmeans.h"
#include "models/convnext/embedding/mutual_information.h"
#include "models/convnext/embedding/neighbours.h"
#include "models/layers/simd_clones.h"

namespace redline::models::embedding {

namespace {

// In eight parts, so that the compiler may add side by side.
REDLINE_SIMD_CLONES double sum_of(const double* values, int64_t count) {
  double parts[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (int64_t l = 0; l < 8; ++l) parts[l] += values[i + l];
  double sum = 0.0;
  for (; i < count; ++i) sum += values[i];
  for (const double part : parts) sum += part;
  return sum;
}

// What the pass over all pairs finds for each row; summed in the rows' order, so that threads change nothing.
struct RowFinding {
  double silhouette = 0.0, intra = 0.0, inter = 0.0;  // the last two are sums of distances
  Neighbours neighbours;
};

class PairPass {
 public:
  PairPass(const torch::Tensor& vectors, const ClassOrder& order, int64_t deepest)
      : order_(order), deepest_(deepest), found_(order.rows.size()) {
    for_distance_rows(vectors, [&](int64_t row, std::span<const double> distances) { look(row, distances); });
  }
  const std::vector<RowFinding>& found() const { return found_; }

 private:
  void look(int64_t row, std::span<const double> distances) {
    const int64_t own = order_.class_of[static_cast<size_t>(row)];
    RowFinding& out = found_[static_cast<size_t>(row)];
    double nearest = INFINITY;  // mean distance to the nearest other class
    for (int64_t c = 0; c < order_.num_classes(); ++c) {
      const double sum = sum_of(distances.data() + order_.begin[static_cast<size_t>(c)], order_.count(c));
      if (c == own) {
        out.intra = sum;
      } else {
        out.inter += sum;
        nearest = std::min(nearest, sum / static_cast<double>(order_.count(c)));
      }
    }
    const int64_t others = order_.count(own) - 1;
    if (others > 0) {
      const double mean = out.intra / static_cast<double>(others), larger = std::max(mean, nearest);
      out.silhouette = larger > 0.0 && std::isfinite(nearest) ? (nearest - mean) / larger : 0.0;
    }
    thread_local NeighbourRanks ranks(0);
    ranks.look_to(deepest_);
    out.neighbours = ranks.of(distances, order_.rows, row, order_.begin[static_cast<size_t>(own)],
                              order_.begin[static_cast<size_t>(own) + 1]);
  }

  const ClassOrder& order_;
  int64_t deepest_;
  std::vector<RowFinding> found_;
};

// False when there is nothing to measure; says why.
bool usable(const EmbeddingSet& set, std::vector<std::string>& notes) {
  if (set.size() < 2) {
    notes.push_back(fmt::format("There are {} embeddings: separation needs at least 2.", set.size()));
    return false;
  }
  const torch::Tensor bad = set.vectors.isfinite().all(1).logical_not().nonzero();
  if (bad.size(0) == 0) return true;
  const int64_t row = bad[0][0].item<int64_t>();
  const std::string sample = set.ids.empty() ? "" : fmt::format(", sample {}", set.ids[static_cast<size_t>(row)]);
  notes.push_back(
      fmt::format("{} of {} embeddings hold values that are not finite (the first: row {}{}), so nothing was measured: "
                  "the model's numbers have overflowed; look at the loss, or train at a safer precision.",
                  bad.size(0), set.size(), row, sample));
  return false;
}

void add_neighbours(const PairPass& pass, const SeparationOptions& options, Separation& out) {
  double queries = 0.0, precision = 0.0;
  std::map<int64_t, double> hits;
  for (const RowFinding& row : pass.found()) {
    if (row.neighbours.first_rank == 0) continue;
    ++queries;
    precision += row.neighbours.average_precision;
    for (const int64_t k : options.recall_at)
      if (row.neighbours.first_rank <= k) ++hits[k];
  }
  const auto n = static_cast<int64_t>(pass.found().size());
  if (queries == 0.0) {
    out.notes.push_back("Every class has one embedding: recall@k and mAP@R have nothing to find and are left out.");
    return;
  }
  if (const int64_t alone = n - static_cast<int64_t>(queries); alone > 0)
    out.notes.push_back(
        fmt::format("{} of {} embeddings are alone in their class: recall@k and mAP@R leave them out as queries, the "
                    "silhouette counts them as 0.",
                    alone, n));
  out.map_at_r = precision / queries;
  for (const int64_t k : options.recall_at) {
    if (k >= n)
      out.notes.push_back(fmt::format("recall@{} needs more than {} embeddings; there are {}: left out.", k, k, n));
    else
      out.recall[k] = hits[k] / queries;
  }
}

void add_pairs(const PairPass& pass, const ClassOrder& order, Separation& out) {
  double silhouette = 0.0, intra = 0.0, inter = 0.0, within = 0.0;
  for (const RowFinding& row : pass.found()) silhouette += row.silhouette, intra += row.intra, inter += row.inter;
  for (int64_t c = 0; c < order.num_classes(); ++c)
    within += static_cast<double>(order.count(c)) * static_cast<double>(order.count(c) - 1);
  const auto n = static_cast<double>(pass.found().size());
  out.silhouette = silhouette / n;
  const double between = n * (n - 1.0) - within;
  if (within > 0.0 && inter > 0.0) out.intra_inter_ratio = (intra / within) / (inter / between);
}

}  // namespace

Separation measure_separation(const EmbeddingSet& set, const SeparationOptions& options) {
  REDLINE_CHECK(set.vectors.defined() ? set.vectors.dim() == 2 && set.vectors.size(0) == set.size() : set.size() == 0,
                "every embedding has a label");
  Separation out;
  if (!usable(set, out.notes)) return out;
  const torch::NoGradGuard no_grad;
  const ClassOrder order = order_by_class(set.labels);
  // Made twice and never kept beside the doubles: the copies are most of what measuring takes.
  const auto by_class = [&] {
    return set.vectors.to(torch::kCPU, torch::kFloat32).index_select(0, torch::tensor(order.rows)).contiguous();
  };
  torch::Tensor vectors = by_class().to(torch::kFloat64);
  vectors -= vectors.mean(0);  // distances stay, and a common offset takes none of their digits
  const int64_t deepest =
      options.recall_at.empty() ? 1 : *std::max_element(options.recall_at.begin(), options.recall_at.end());
  const PairPass pass(vectors, order, deepest);
  add_neighbours(pass, options, out);
  if (order.num_classes() < 2 || order.num_classes() >= set.size()) {
    out.notes.push_back(
        fmt::format("Silhouette, Davies-Bouldin, Calinski-Harabasz, the distance ratio and NMI need at least 2 classes "
                    "and more embeddings than classes; there are {} classes and {} embeddings: left out.",
                    order.num_classes(), set.size()));
    return out;
  }
  add_pairs(pass, order, out);
  const CentroidMetrics centroids = centroid_metrics(vectors, order);
  out.davies_bouldin = centroids.davies_bouldin;
  out.calinski_harabasz = centroids.calinski_harabasz;
  vectors.reset();
  if (options.clusters) {
    const Clustering found =
        kmeans(by_class(), {order.num_classes(), options.kmeans_restarts, 100, 1e-4, options.seed});
    out.nmi = normalized_mutual_information(order.class_of, found.assignment);
  }
  return out;
}

std::map<std::string, double> Separation::metrics() const {
  std::map<std::string, double> all;
  const auto put = [&](const char* name, const std::optional<double>& value) {
    if (value) all[name] = *value;
  };
  put("silhouette", silhouette);
  put("davies_bouldin", davies_bouldin);
  put("calinski_harabasz", calinski_harabasz);
  put("intra_inter_ratio", intra_inter_ratio);
  put("map_at_r", map_at_r);
  put("nmi", nmi);
  for (const auto& [k, value] : recall) all[fmt::format("recall_at_{}", k)] = value;
  return all;
}

std::vector<SeparationMetric> separation_metrics(const std::vector<int64_t>& recall_at) {
  std::vector<SeparationMetric> list = {
      {"silhouette", "Mean silhouette, from -1 to 1: how much nearer an embedding is to its class than to the next."},
      {"davies_bouldin",
       "Davies-Bouldin index: spread of classes over the distance of their centres; lower is better."},
      {"calinski_harabasz", "Calinski-Harabasz index: variance between classes over the variance within."},
      {"intra_inter_ratio", "Mean distance of pairs within a class over that of pairs between; lower is better."},
      {"map_at_r", "Mean average precision at R, R being how many others a query's class has."},
      {"nmi", "Normalised mutual information of the classes and k-means clusters, as many as classes."}};
  for (const int64_t k : recall_at)
    list.push_back({fmt::format("recall_at_{}", k),
                    fmt::format("Share of embeddings with one of their class among the {} nearest.", k)});
  return list;
}

}  // namespace redline::models::embedding
