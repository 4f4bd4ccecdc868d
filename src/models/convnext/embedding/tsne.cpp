#include "models/convnext/embedding/tsne.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "models/convnext/embedding/distance_rows.h"
#include "models/convnext/embedding/pca.h"
#include "models/layers/simd_clones.h"

namespace redline::models::embedding {

namespace {

constexpr int kLanes16 = 16;

struct Repulsion {
  double normaliser = 0.0, x = 0.0, y = 0.0;
};

// Sums over all points, the own one included (it adds 1 to the normaliser and no force).
REDLINE_SIMD_CLONES Repulsion repulsion_on(const float* xs, const float* ys, int64_t n, float x, float y) {
  float sum[kLanes16] = {}, fx[kLanes16] = {}, fy[kLanes16] = {};
  int64_t j = 0;
  for (; j + kLanes16 <= n; j += kLanes16) {
    for (int l = 0; l < kLanes16; ++l) {
      const float dx = x - xs[j + l], dy = y - ys[j + l];
      const float q = 1.0f / (1.0f + dx * dx + dy * dy), qq = q * q;
      sum[l] += q;
      fx[l] += qq * dx;
      fy[l] += qq * dy;
    }
  }
  Repulsion out;
  for (; j < n; ++j) {
    const float dx = x - xs[j], dy = y - ys[j];
    const float q = 1.0f / (1.0f + dx * dx + dy * dy);
    out.normaliser += q;
    out.x += q * q * dx;
    out.y += q * q * dy;
  }
  for (int l = 0; l < kLanes16; ++l) out.normaliser += sum[l], out.x += fx[l], out.y += fy[l];
  return out;
}

struct Near {
  double squared;
  int64_t row;
};

// The nearest k of a row, nearest first, without itself.
std::vector<Near> nearest_of(int64_t row, std::span<const double> distances, int64_t k) {
  std::vector<Near> all;
  all.reserve(distances.size());
  for (size_t j = 0; j < distances.size(); ++j)
    if (static_cast<int64_t>(j) != row) all.push_back({distances[j] * distances[j], static_cast<int64_t>(j)});
  const auto before = [](const Near& a, const Near& b) {
    return a.squared < b.squared || (a.squared == b.squared && a.row < b.row);
  };
  std::partial_sort(all.begin(), all.begin() + k, all.end(), before);
  all.resize(static_cast<size_t>(k));
  return all;
}

// Gaussian weights whose entropy is that of `perplexity` equal neighbours.
std::vector<double> weights_of(const std::vector<Near>& near, double perplexity) {
  const double wanted = std::log(perplexity);
  double low = -INFINITY, high = INFINITY, beta = 1.0;
  std::vector<double> p(near.size());
  for (int step = 0; step < 100; ++step) {
    double sum = 0.0, weighted = 0.0;
    for (size_t i = 0; i < near.size(); ++i) {
      const double apart = near[i].squared - near[0].squared;  // the nearest has weight 1 whatever beta is
      p[i] = std::exp(-apart * beta);
      sum += p[i];
      weighted += apart * p[i];
    }
    for (double& value : p) value /= sum;
    const double missing = std::log(sum) + beta * weighted / sum - wanted;
    if (std::abs(missing) <= 1e-5) break;
    (missing > 0.0 ? low : high) = beta;
    if (missing > 0.0)
      beta = std::isinf(high) ? beta * 2.0 : 0.5 * (beta + high);
    else
      beta = std::isinf(low) ? beta / 2.0 : 0.5 * (beta + low);
  }
  return p;
}

struct Edge {
  int64_t from, to;
  double p;
};

// Half a step of gradient descent with momentum and a gain for each coordinate.
void descend(std::vector<float>& at, std::vector<float>& moved, std::vector<float>& gain,
             const std::vector<float>& gradient, double momentum, double rate) {
  for (size_t i = 0; i < at.size(); ++i) {
    const bool onwards = moved[i] * gradient[i] < 0.0f;
    gain[i] = std::max(0.01f, onwards ? gain[i] + 0.2f : gain[i] * 0.8f);
    moved[i] = static_cast<float>(momentum * moved[i] - rate * gain[i] * gradient[i]);
    at[i] += moved[i];
  }
}

double length_of(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0.0;
  for (size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * x[i] + static_cast<double>(y[i]) * y[i];
  return std::sqrt(sum);
}

class Descent {
 public:
  Descent(const Affinities& affinities, std::vector<float> x, std::vector<float> y, const TsneOptions& options)
      : affinities_(affinities), x_(std::move(x)), y_(std::move(y)), options_(options) {
    rate_ = std::max(static_cast<double>(x_.size()) / options.exaggeration / 4.0, 50.0);
  }

  // A part of the way: momentum, gains and what counts as progress begin anew.
  void run(int64_t until, double exaggeration, double momentum) {
    std::vector<float> gx, gy, moved_x(x_.size()), moved_y(x_.size()), gain_x(x_.size(), 1.0f), gain_y = gain_x;
    double best = INFINITY;
    int64_t best_step = steps_;
    for (; steps_ < until; ++steps_) {
      const bool look = (steps_ + 1) % 50 == 0;
      double divergence = 0.0;
      tsne_gradient(affinities_, x_, y_, exaggeration, gx, gy, look ? &divergence : nullptr);
      descend(x_, moved_x, gain_x, gx, momentum, rate_);
      descend(y_, moved_y, gain_y, gy, momentum, rate_);
      if (!look) continue;
      if (divergence < best) best = divergence, best_step = steps_;
      if (steps_ - best_step > options_.patience || length_of(gx, gy) <= options_.least_gradient) break;
    }
  }

  TsneResult result() {
    TsneResult out;
    std::vector<float> gx, gy;
    tsne_gradient(affinities_, x_, y_, 1.0, gx, gy, &out.divergence);
    out.steps = steps_;
    out.points = torch::stack({torch::tensor(x_), torch::tensor(y_)}, 1).to(torch::kFloat64);
    return out;
  }

 private:
  const Affinities& affinities_;
  std::vector<float> x_, y_;
  TsneOptions options_;
  double rate_ = 50.0;
  int64_t steps_ = 0;
};

}  // namespace

Affinities tsne_affinities(const torch::Tensor& vectors, double perplexity) {
  torch::Tensor x = vectors.to(torch::kCPU, torch::kFloat64).contiguous();
  const int64_t n = x.size(0);
  perplexity = std::min(perplexity, static_cast<double>(n - 1) / 3.0);
  const int64_t k = std::min<int64_t>(n - 1, static_cast<int64_t>(3.0 * perplexity + 1.0));
  std::vector<Edge> edges(static_cast<size_t>(2 * n * k));
  for_distance_rows(x, [&](int64_t row, std::span<const double> distances) {
    const std::vector<Near> near = nearest_of(row, distances, k);
    const std::vector<double> p = weights_of(near, perplexity);
    for (int64_t i = 0; i < k; ++i) {  // each edge both ways: that is p + its transpose
      const int64_t other = near[static_cast<size_t>(i)].row;
      edges[static_cast<size_t>(2 * (row * k + i))] = {row, other, p[static_cast<size_t>(i)]};
      edges[static_cast<size_t>(2 * (row * k + i) + 1)] = {other, row, p[static_cast<size_t>(i)]};
    }
  });
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) {
    return a.from != b.from ? a.from < b.from : a.to != b.to ? a.to < b.to : a.p < b.p;
  });
  Affinities out;
  out.begin.assign(static_cast<size_t>(n) + 1, 0);
  const double total = 2.0 * static_cast<double>(n);
  for (size_t e = 0; e < edges.size();) {
    size_t end = e;
    double p = 0.0;
    while (end < edges.size() && edges[end].from == edges[e].from && edges[end].to == edges[e].to) p += edges[end++].p;
    out.neighbour.push_back(edges[e].to);
    out.p.push_back(static_cast<float>(p / total));
    out.begin[static_cast<size_t>(edges[e].from) + 1] = static_cast<int64_t>(out.p.size());
    e = end;
  }
  return out;
}

void tsne_gradient(const Affinities& affinities, const std::vector<float>& x, const std::vector<float>& y,
                   double exaggeration, std::vector<float>& gradient_x, std::vector<float>& gradient_y,
                   double* divergence) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<Repulsion> away(x.size()), towards(x.size());
  std::vector<double> apart(x.size());
  at::parallel_for(0, n, 256, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      away[at] = repulsion_on(x.data(), y.data(), n, x[at], y[at]);
      Repulsion& pull = towards[at];
      for (int64_t e = affinities.begin[at]; e < affinities.begin[at + 1]; ++e) {
        const auto edge = static_cast<size_t>(e), other = static_cast<size_t>(affinities.neighbour[edge]);
        const double dx = x[at] - x[other], dy = y[at] - y[other], p = exaggeration * affinities.p[edge];
        const double q = 1.0 / (1.0 + dx * dx + dy * dy);
        pull.x += p * q * dx;
        pull.y += p * q * dy;
        if (divergence != nullptr && p > 0.0) apart[at] += p * std::log(p / q);
      }
    }
  });
  double normaliser = -static_cast<double>(n);  // without the points themselves
  for (const Repulsion& one : away) normaliser += one.normaliser;
  gradient_x.resize(x.size());
  gradient_y.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    gradient_x[i] = static_cast<float>(4.0 * (towards[i].x - away[i].x / normaliser));
    gradient_y[i] = static_cast<float>(4.0 * (towards[i].y - away[i].y / normaliser));
  }
  if (divergence == nullptr) return;
  const double mass = exaggeration * std::accumulate(affinities.p.begin(), affinities.p.end(), 0.0);
  *divergence = std::accumulate(apart.begin(), apart.end(), 0.0) + mass * std::log(normaliser);
}

TsneResult tsne(const torch::Tensor& vectors, const TsneOptions& options) {
  REDLINE_CHECK(vectors.size(0) >= 4, "a picture has some points");
  const torch::NoGradGuard no_grad;
  const Affinities affinities = tsne_affinities(vectors, options.perplexity);
  torch::Tensor start = principal_components(vectors, 2).points;
  start = start / std::max(1e-12, start.select(1, 0).std(/*unbiased=*/false).item<double>()) * 1e-4;
  const auto column = [&](int64_t c) {
    const torch::Tensor values = start.select(1, c).to(torch::kFloat32).contiguous();
    return std::vector<float>(values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel());
  };
  Descent descent(affinities, column(0), column(1), options);
  descent.run(std::min(options.exaggerated_steps, options.most_steps), options.exaggeration, 0.5);
  descent.run(options.most_steps, 1.0, 0.8);
  return descent.result();
}

}  // namespace redline::models::embedding
