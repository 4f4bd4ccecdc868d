#include "models/convnext/embedding/kmeans.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/philox.h"
#include "models/layers/gemm.h"

namespace redline::models::embedding {

namespace {

constexpr int64_t kTileRows = 256;
constexpr uint64_t kClusterDraw = 0x6b6d65616e73;

// The rows about their mean: then a product in single precision loses nothing to a common offset.
struct Points {
  torch::Tensor vectors;  // [n, d]
  torch::Tensor norms;    // [n] squared
  int64_t n, d;
  double variance;  // mean over columns
};

// Row by row: LibTorch's operators would make copies of all rows as doubles, the most that measuring would take.
Points centre(const torch::Tensor& given, torch::Tensor& mean) {
  const torch::Tensor vectors = given.contiguous();
  Points points;
  points.n = vectors.size(0);
  points.d = vectors.size(1);
  const auto d = static_cast<size_t>(points.d);
  std::vector<double> sums(d, 0.0);
  const float* x = vectors.const_data_ptr<float>();
  for (int64_t row = 0; row < points.n; ++row)
    for (size_t j = 0; j < d; ++j) sums[j] += static_cast<double>(x[static_cast<size_t>(row) * d + j]);
  mean = torch::empty({points.d});
  for (size_t j = 0; j < d; ++j)
    mean.mutable_data_ptr<float>()[j] = static_cast<float>(sums[j] / static_cast<double>(points.n));
  points.vectors = vectors - mean;
  points.norms = torch::empty({points.n});
  const float* centred = points.vectors.const_data_ptr<float>();
  double all = 0.0;
  for (int64_t row = 0; row < points.n; ++row) {
    double norm = 0.0;
    for (size_t j = 0; j < d; ++j) {
      const double value = static_cast<double>(centred[static_cast<size_t>(row) * d + j]);
      norm += value * value;
    }
    points.norms.mutable_data_ptr<float>()[row] = static_cast<float>(norm);
    all += norm;
  }
  points.variance = all / static_cast<double>(points.n * points.d);
  return points;
}

// use(first row, rows, products [rows, k]) for tiles of fixed size, from several threads.
template <class Use>
void for_products(const Points& points, const torch::Tensor& centres, const Use& use) {
  const int64_t k = centres.size(0), tiles = (points.n + kTileRows - 1) / kTileRows;
  const float *x = points.vectors.const_data_ptr<float>(), *c = centres.const_data_ptr<float>();
  at::parallel_for(0, tiles, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> products(static_cast<size_t>(kTileRows * k));
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t first = tile * kTileRows, rows = std::min(kTileRows, points.n - first);
      float_nt(rows, k, points.d, x + first * points.d, points.d, c, points.d, 0.0f, products.data(), k);
      use(first, rows, products.data());
    }
  });
}

class Start {
 public:
  Start(const Points& points, int64_t clusters, KeyedStream stream)
      : points_(points),
        stream_(stream),
        clusters_(clusters),
        nearest_(static_cast<size_t>(points.n), std::numeric_limits<double>::infinity()),
        trials_(2 + static_cast<int64_t>(std::log(static_cast<double>(clusters)))) {}

  torch::Tensor choose() {
    torch::Tensor centres = torch::empty({clusters_, points_.d});
    int64_t chosen = stream_.uniform_int(0, points_.n - 1);
    take(chosen);
    centres[0].copy_(points_.vectors[chosen]);
    for (int64_t c = 1; c < clusters_; ++c) {
      chosen = best_of(draw());
      take(chosen);
      centres[c].copy_(points_.vectors[chosen]);
    }
    return centres;
  }

 private:
  // Rows with a chance in proportion to their squared distance from the nearest centre.
  std::vector<int64_t> draw() {
    const double total = std::accumulate(nearest_.begin(), nearest_.end(), 0.0);
    std::vector<double> marks(static_cast<size_t>(trials_));
    for (double& mark : marks) mark = stream_.uniform() * total;
    std::sort(marks.begin(), marks.end());
    std::vector<int64_t> rows;
    double sum = 0.0;
    for (int64_t i = 0; i < points_.n && rows.size() < marks.size(); ++i) {
      sum += nearest_[static_cast<size_t>(i)];
      while (rows.size() < marks.size() && sum > marks[rows.size()]) rows.push_back(i);
    }
    if (rows.empty()) rows.push_back(stream_.uniform_int(0, points_.n - 1));  // all points are centres already
    return rows;
  }

  // Squared distances of all rows to some of them, in [row][candidate].
  std::vector<double> distances(const std::vector<int64_t>& rows) const {
    const auto count = static_cast<int64_t>(rows.size());
    const torch::Tensor chosen = points_.vectors.index_select(0, torch::tensor(rows)).contiguous();
    const float* norms = points_.norms.const_data_ptr<float>();
    std::vector<double> out(static_cast<size_t>(points_.n * count));
    for_products(points_, chosen, [&](int64_t first, int64_t tile, const float* products) {
      for (int64_t r = 0; r < tile; ++r)
        for (int64_t t = 0; t < count; ++t) {
          const double norm = norms[rows[static_cast<size_t>(t)]];
          const double squared = norms[first + r] + norm - 2.0 * static_cast<double>(products[r * count + t]);
          out[static_cast<size_t>((first + r) * count + t)] = std::max(0.0, squared);
        }
    });
    return out;
  }

  int64_t best_of(const std::vector<int64_t>& rows) {
    const std::vector<double> all = distances(rows);
    std::vector<double> left(rows.size(), 0.0);  // the sum that stays with each candidate
    for (size_t i = 0; i < nearest_.size(); ++i)
      for (size_t t = 0; t < rows.size(); ++t) left[t] += std::min(nearest_[i], all[i * rows.size() + t]);
    return rows[static_cast<size_t>(std::min_element(left.begin(), left.end()) - left.begin())];
  }

  void take(int64_t row) {
    const std::vector<double> to = distances({row});
    for (size_t i = 0; i < nearest_.size(); ++i) nearest_[i] = std::min(nearest_[i], to[i]);
    nearest_[static_cast<size_t>(row)] = 0.0;
  }

  const Points& points_;
  KeyedStream stream_;
  int64_t clusters_;
  std::vector<double> nearest_;
  int64_t trials_;
};

class Lloyd {
 public:
  Lloyd(const Points& points, torch::Tensor centres)
      : points_(points),
        centres_(std::move(centres)),
        assignment_(static_cast<size_t>(points.n), -1),
        distance_(static_cast<size_t>(points.n)) {}

  Clustering run(const KMeansOptions& options) {
    const double tolerance = options.tolerance * points_.variance;
    Clustering result;
    for (result.iterations = 1; result.iterations <= options.most_iterations; ++result.iterations) {
      if (!assign() || move() <= tolerance) break;
    }
    assign();
    result.inertia = inertia();
    result.assignment = std::move(assignment_);
    result.centres = centres_;
    return result;
  }

 private:
  // True when a row changed its cluster.
  bool assign() {
    const int64_t k = centres_.size(0);
    const torch::Tensor half_norms = centres_.square().sum(1) * 0.5f;
    const float *half = half_norms.const_data_ptr<float>(), *norms = points_.norms.const_data_ptr<float>();
    std::vector<char> changed(static_cast<size_t>((points_.n + kTileRows - 1) / kTileRows), 0);
    for_products(points_, centres_, [&](int64_t first, int64_t tile, const float* products) {
      for (int64_t r = 0; r < tile; ++r) {
        const float* row = products + r * k;
        int64_t best = 0;
        float most = row[0] - half[0];
        for (int64_t c = 1; c < k; ++c)
          if (row[c] - half[c] > most) most = row[c] - half[c], best = c;
        const auto at = static_cast<size_t>(first + r);
        if (assignment_[at] != best) changed[static_cast<size_t>(first / kTileRows)] = 1;
        assignment_[at] = best;
        distance_[at] = std::max(0.0f, norms[first + r] - 2.0f * most);
      }
    });
    return std::find(changed.begin(), changed.end(), 1) != changed.end();
  }

  // Rows of each cluster one after another; an empty cluster takes the row that is farthest from its centre.
  std::vector<std::vector<int64_t>> members() {
    std::vector<std::vector<int64_t>> rows(static_cast<size_t>(centres_.size(0)));
    for (size_t i = 0; i < assignment_.size(); ++i)
      rows[static_cast<size_t>(assignment_[i])].push_back(static_cast<int64_t>(i));
    for (size_t c = 0; c < rows.size(); ++c) {
      if (!rows[c].empty()) continue;
      const auto far = static_cast<size_t>(std::max_element(distance_.begin(), distance_.end()) - distance_.begin());
      std::erase(rows[static_cast<size_t>(assignment_[far])], static_cast<int64_t>(far));
      rows[c].push_back(static_cast<int64_t>(far));
      assignment_[far] = static_cast<int64_t>(c);
      distance_[far] = 0.0f;
    }
    return rows;
  }

  // Centres to the means of their rows; the sum of their squared movements.
  double move() {
    const std::vector<std::vector<int64_t>> rows = members();
    const int64_t k = centres_.size(0), d = points_.d;
    const float* x = points_.vectors.const_data_ptr<float>();
    auto* centre = centres_.mutable_data_ptr<float>();
    std::vector<double> moved(static_cast<size_t>(k));
    at::parallel_for(0, k, 1, [&](int64_t begin, int64_t end) {
      std::vector<double> sum(static_cast<size_t>(d));
      for (int64_t c = begin; c < end; ++c) {
        const std::vector<int64_t>& own = rows[static_cast<size_t>(c)];
        if (own.empty()) continue;
        std::fill(sum.begin(), sum.end(), 0.0);
        for (const int64_t row : own)
          for (int64_t j = 0; j < d; ++j) sum[static_cast<size_t>(j)] += x[row * d + j];
        for (int64_t j = 0; j < d; ++j) {
          const auto mean = static_cast<float>(sum[static_cast<size_t>(j)] / static_cast<double>(own.size()));
          const double step = mean - centre[c * d + j];
          moved[static_cast<size_t>(c)] += step * step;
          centre[c * d + j] = mean;
        }
      }
    });
    return std::accumulate(moved.begin(), moved.end(), 0.0);
  }

  double inertia() const {
    const float *x = points_.vectors.const_data_ptr<float>(), *centre = centres_.const_data_ptr<float>();
    double total = 0.0;
    for (int64_t i = 0; i < points_.n; ++i) {
      const float* own = centre + assignment_[static_cast<size_t>(i)] * points_.d;
      for (int64_t j = 0; j < points_.d; ++j) {
        const double apart = static_cast<double>(x[i * points_.d + j]) - static_cast<double>(own[j]);
        total += apart * apart;
      }
    }
    return total;
  }

  const Points& points_;
  torch::Tensor centres_;
  std::vector<int64_t> assignment_;
  std::vector<float> distance_;
};

}  // namespace

Clustering kmeans(const torch::Tensor& vectors, const KMeansOptions& options) {
  if (options.clusters < 1 || vectors.size(0) < options.clusters)
    throw DataError(
        fmt::format("k-means cannot make {} clusters of {} vectors: it needs at least one for each cluster.",
                    options.clusters, vectors.size(0)));
  const torch::NoGradGuard no_grad;
  torch::Tensor mean;
  const Points points = centre(vectors, mean);
  Clustering best;
  for (int64_t start = 0; start < std::max<int64_t>(1, options.restarts); ++start) {
    const KeyedStream stream(options.seed, 0, static_cast<uint64_t>(start), kClusterDraw);
    Clustering found = Lloyd(points, Start(points, options.clusters, stream).choose()).run(options);
    if (start == 0 || found.inertia < best.inertia) best = std::move(found);
  }
  best.centres += mean;
  return best;
}

}  // namespace redline::models::embedding
