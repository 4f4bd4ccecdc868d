#include "models/sequence_vae/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "draw/panel.h"

namespace redline::models::sequence_vae {

namespace {

using draw::Canvas, draw::Color, draw::Panel, draw::Point, draw::Series;
constexpr Color kCollapsed{220, 38, 38, 0.10};
constexpr double kWidth = 960, kHeight = 600;

void draw_heading(Canvas& canvas, const PosteriorPicture& picture, const std::string& what) {
  canvas.rectangle({0, 0}, kWidth, kHeight, {255, 255, 255});
  canvas.text({16, 26}, fmt::format("{}, step {}", what, picture.step), {15, draw::kInk, draw::Anchor::Start, true});
  const bool collapsed = picture.verdict.level != Collapse::None;
  std::string sentence = picture.verdict.sentence();
  if (sentence.size() > 150) sentence = sentence.substr(0, 147) + "...";
  canvas.text({16, 45}, sentence, {11, collapsed ? draw::kRed : draw::kQuiet});
}

using Value = std::function<double(const HistoryPoint&)>;
Series series_of(const PosteriorPicture& picture, const std::string& name, Color color, const Value& value) {
  Series series{name, color, {}};
  for (const HistoryPoint& p : picture.history)
    if (std::isfinite(value(p))) series.points.push_back({static_cast<double>(p.step), value(p)});
  return series;
}

void draw_curves(Canvas& canvas, const PosteriorPicture& picture, Point corner, const std::string& title,
                 bool from_zero, const std::vector<Series>& list) {
  Panel panel(canvas, corner, kWidth / 2 - 12, (kHeight - 60) / 2, title);
  double low = from_zero ? 0.0 : INFINITY, high = -INFINITY;
  for (const Series& series : list)
    for (const Point& p : series.points) {
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  if (!std::isfinite(high)) return panel.empty("nothing recorded yet");
  panel.axes(static_cast<double>(picture.history.front().step), static_cast<double>(picture.history.back().step), low,
             high);
  for (size_t i = 0; i < picture.history.size(); ++i) {
    if (picture.history[i].collapse == 0) continue;
    const double from = static_cast<double>(picture.history[i].step);
    const double to = i + 1 < picture.history.size() ? static_cast<double>(picture.history[i + 1].step) : from;
    panel.shade(from, to, kCollapsed);
  }
  for (const Series& series : list) panel.curve(series);
  if (list.size() > 1) panel.legend(list);
}

std::string draw_history(std::unique_ptr<Canvas> canvas, const PosteriorPicture& picture) {
  draw_heading(*canvas, picture, "Posterior over the run");
  const double middle = kWidth / 2, lower = 60 + (kHeight - 60) / 2;
  draw_curves(
      *canvas, picture, {8, 60}, "KL and mutual information (nats)", true,
      {series_of(picture, "KL", draw::kBlue, [](const HistoryPoint& p) { return p.kl; }),
       series_of(picture, "information", draw::kTeal, [](const HistoryPoint& p) { return p.mutual_information; })});
  draw_curves(*canvas, picture, {middle + 4, 60}, fmt::format("Active units (of {})", picture.kl_per_dim.size()), true,
              {series_of(picture, "active units", draw::kViolet,
                         [](const HistoryPoint& p) { return static_cast<double>(p.active_units); })});
  draw_curves(
      *canvas, picture, {8, lower}, "Reconstruction (nats per sequence)", false,
      {series_of(picture, "reconstruction", draw::kAmber, [](const HistoryPoint& p) { return p.reconstruction; })});
  draw_curves(*canvas, picture, {middle + 4, lower}, "KL weight", true,
              {series_of(picture, "weight", draw::kInk, [](const HistoryPoint& p) { return p.kl_weight; })});
  return canvas->finish();
}

// Bars by dimension; `floor` is the bottom of the axis.
void draw_bars(Canvas& canvas, const PosteriorPicture& picture, double top, const std::string& title,
               const std::vector<double>& values, double floor, double at_least,
               const std::function<void(Panel&)>& finish) {
  Panel panel(canvas, {8, top}, kWidth - 16, (kHeight - 60) / 2, title);
  double high = at_least;
  for (double value : values) high = std::max(high, value);
  const auto count = static_cast<double>(values.size());
  panel.axes(-0.5, count - 0.5, floor, high, false);
  const size_t stride = std::max<size_t>(1, values.size() / 32);
  for (size_t j = 0; j < values.size(); ++j) {
    const bool active = picture.variance[j] >= picture.active_variance;
    panel.bar(static_cast<double>(j), 0.72, values[j], active ? draw::kBlue : draw::kGrey);
    if (j % stride == 0) panel.note(static_cast<double>(j), std::to_string(j));
  }
  finish(panel);
}

std::string draw_dimensions(std::unique_ptr<Canvas> canvas, const PosteriorPicture& picture) {
  draw_heading(*canvas, picture, "Posterior by dimension");
  draw_bars(*canvas, picture, 60, "KL of each latent dimension (nats)", picture.kl_per_dim, 0.0, 0.1, [](Panel& panel) {
    panel.legend({{"active", draw::kBlue, {}}, {"inactive", draw::kGrey, {}}});
  });
  std::vector<double> logs;
  double floor = std::log10(picture.active_variance) - 2.0;
  for (double value : picture.variance) logs.push_back(std::max(floor, std::log10(std::max(value, 1e-30))));
  draw_bars(*canvas, picture, 60 + (kHeight - 60) / 2, "Variance of posterior means (log10)", logs, floor, 0.0,
            [&](Panel& panel) {
              panel.level(std::log10(picture.active_variance),
                          fmt::format("active from {:g}", picture.active_variance));
            });
  return canvas->finish();
}

}  // namespace

std::string history_svg(const PosteriorPicture& picture) {
  return draw_history(draw::make_svg(kWidth, kHeight, "Posterior over the run"), picture);
}
std::string history_png(const PosteriorPicture& picture) {
  return draw_history(draw::make_png(kWidth, kHeight), picture);
}
std::string dimensions_svg(const PosteriorPicture& picture) {
  return draw_dimensions(draw::make_svg(kWidth, kHeight, "Posterior by dimension"), picture);
}
std::string dimensions_png(const PosteriorPicture& picture) {
  return draw_dimensions(draw::make_png(kWidth, kHeight), picture);
}

}  // namespace redline::models::sequence_vae
