#include "models/convnext/embedding/pictures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "draw/panel.h"
#include "models/convnext/embedding/tsne.h"

namespace redline::models::embedding {

namespace {

using draw::Canvas, draw::Color, draw::Panel, draw::Point, draw::Series;
constexpr double kPageWidth = 960, kPageHeight = 520, kTop = 64;
constexpr size_t kMostNamed = 12;  // classes in the legend

// Hues that lie far apart for the first classes, darker in every other turn.
Color class_color(size_t number) {
  constexpr double kGolden = 0.61803398875;
  const double hue = std::fmod(0.6 + static_cast<double>(number) * kGolden, 1.0);
  const double value = number % 2 == 0 ? 0.85 : 0.6, saturation = 0.75;
  const auto channel = [&](double shift) {
    const double k = std::fmod(shift + hue * 6.0, 6.0);
    const double level = value - value * saturation * std::max(0.0, std::min({k, 4.0 - k, 1.0}));
    return static_cast<uint8_t>(std::lround(255.0 * level));
  };
  return {channel(5), channel(3), channel(1), 0.75};
}

void draw_points(Canvas& canvas, const torch::Tensor& points, const std::vector<int64_t>& labels, double left,
                 const std::string& title) {
  Panel panel(canvas, {left, kTop}, kPageWidth / 2 - 8, kPageHeight - kTop - 8, title);
  if (!points.defined() || points.size(0) == 0) return panel.empty("too few embeddings");
  const auto at = points.accessor<double, 2>();
  double low[2] = {INFINITY, INFINITY}, high[2] = {-INFINITY, -INFINITY};
  std::map<int64_t, Series> classes;
  for (int64_t i = 0; i < points.size(0); ++i) {
    for (int c = 0; c < 2; ++c) {
      if (!std::isfinite(at[i][c])) return panel.empty("values that are not finite");
      low[c] = std::min(low[c], at[i][c]), high[c] = std::max(high[c], at[i][c]);
    }
    classes[labels[static_cast<size_t>(i)]].points.push_back({at[i][0], at[i][1]});
  }
  for (int c = 0; c < 2; ++c)
    if (high[c] - low[c] < 1e-9) low[c] -= 0.5, high[c] += 0.5;
  panel.axes(low[0], high[0], low[1], high[1]);
  size_t number = 0;
  const double radius = points.size(0) > 1500 ? 1.3 : 2.2;
  for (auto& [label, series] : classes) {
    series.color = class_color(number++);
    panel.dots(series, radius);
  }
}

void draw_classes(Canvas& canvas, const std::vector<int64_t>& labels) {
  const std::set<int64_t> classes(labels.begin(), labels.end());
  double x = 16;
  size_t number = 0;
  for (const int64_t label : classes) {
    if (number == kMostNamed) {
      canvas.text({x, 60}, fmt::format("and {} more classes", classes.size() - number), {10, draw::kQuiet});
      break;
    }
    canvas.dot({x + 3, 56}, 3.5, class_color(number++));
    const std::string name = std::to_string(label);
    canvas.text({x + 10, 60}, name, {10, draw::kInk});
    x += 22 + 6.5 * static_cast<double>(name.size());
  }
}

std::string draw_picture(std::unique_ptr<Canvas> canvas, const EmbeddingPicture& picture) {
  canvas->rectangle({0, 0}, kPageWidth, kPageHeight, {255, 255, 255});
  canvas->text({16, 24}, picture.title, {15, draw::kInk, draw::Anchor::Start, true});
  canvas->text({16, 42}, picture.caption, {11, draw::kQuiet});
  draw_classes(*canvas, picture.labels);
  const auto share = [&](size_t c) {
    return c < picture.components.explained.size() ? 100.0 * picture.components.explained[c] : 0.0;
  };
  draw_points(*canvas, picture.components.points, picture.labels, 0,
              fmt::format("Principal components ({:.0f} % and {:.0f} % of the variance)", share(0), share(1)));
  draw_points(*canvas, picture.tsne, picture.labels, kPageWidth / 2, "t-SNE");
  return canvas->finish();
}

}  // namespace

EmbeddingPicture make_picture(const EmbeddingSet& set, int64_t most, double perplexity, bool with_tsne) {
  EmbeddingPicture picture;
  const int64_t n = set.size(), kept = std::min(n, most);
  if (kept == 0) return picture;
  std::vector<int64_t> rows;
  for (int64_t i = 0; i < kept; ++i) rows.push_back(i * n / kept);
  for (const int64_t row : rows) picture.labels.push_back(set.labels[static_cast<size_t>(row)]);
  const torch::Tensor vectors = set.vectors.index_select(0, torch::tensor(rows));
  if (!vectors.isfinite().all().item<bool>()) {
    picture.components.points = torch::full({kept, 2}, NAN, torch::kFloat64);
    picture.tsne = picture.components.points;
    return picture;
  }
  picture.components = principal_components(vectors, 2);
  if (!with_tsne || kept < 4) return picture;
  TsneOptions options;
  options.perplexity = perplexity;
  picture.tsne = tsne(vectors, options).points;
  return picture;
}

std::string picture_svg(const EmbeddingPicture& picture) {
  return draw_picture(draw::make_svg(kPageWidth, kPageHeight, picture.title), picture);
}
std::string picture_png(const EmbeddingPicture& picture) {
  return draw_picture(draw::make_png(kPageWidth, kPageHeight), picture);
}

}  // namespace redline::models::embedding
