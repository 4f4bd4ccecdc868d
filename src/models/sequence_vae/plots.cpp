#include "models/sequence_vae/plots.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/sequence_vae/canvas.h"

namespace redline::models::sequence_vae {

std::vector<double> axis_ticks(double low, double high) {
  if (!(high > low)) high = low + std::max(1.0, std::abs(low));
  const double rough = (high - low) / 4.0, power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = power;
  for (double factor : {1.0, 2.0, 5.0, 10.0})
    if (factor * power >= rough) {
      step = factor * power;
      break;
    }
  std::vector<double> ticks;
  const double first = std::floor(low / step + 1e-9);
  for (double k = first;; k += 1.0) {
    ticks.push_back(k * step);
    if (ticks.back() >= high - 1e-9 * step) break;
  }
  return ticks;
}

namespace {

constexpr Color kInk{31, 41, 55}, kQuiet{107, 114, 128}, kGrid{229, 231, 235}, kBlue{37, 99, 235}, kTeal{13, 148, 136},
    kAmber{217, 119, 6}, kViolet{124, 58, 237}, kGrey{156, 163, 175}, kRed{220, 38, 38};
constexpr Color kCollapsed{220, 38, 38, 0.10};
constexpr double kWidth = 960, kHeight = 600;

struct Series {
  std::string name;
  Color color;
  std::vector<Point> points;  // data coordinates
};

std::string tick_text(double value) {
  const double size = std::abs(value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:g}", std::abs(value) < 1e-12 ? 0.0 : value);
}

// A rectangle of the page with axes; maps data to page.
class Panel {
 public:
  Panel(Canvas& canvas, Point corner, double width, double height, const std::string& title)
      : canvas_(canvas), left_(corner.x + 48), top_(corner.y + 30), width_(width - 60), height_(height - 58) {
    canvas_.text({corner.x + 8, corner.y + 16}, title, {12, kInk, Anchor::Start, true});
  }
  void axes(double x_low, double x_high, double y_low, double y_high, bool x_labels = true) {
    const std::vector<double> rows = axis_ticks(y_low, y_high);
    y_low_ = rows.front();
    y_high_ = rows.back();
    x_low_ = x_low;
    x_high_ = x_high > x_low ? x_high : x_low + 1.0;
    for (double value : rows) {
      const double y = place({x_low_, value}).y;
      canvas_.path({{left_, y}, {left_ + width_, y}}, 1, kGrid);
      canvas_.text({left_ - 6, y + 3.5}, tick_text(value), {10, kQuiet, Anchor::End});
    }
    if (!x_labels) return;
    for (double value : axis_ticks(x_low_, x_high_))
      if (value >= x_low_ && value <= x_high_)
        canvas_.text({place({value, y_low_}).x, top_ + height_ + 15}, tick_text(value), {10, kQuiet, Anchor::Middle});
  }
  Point place(Point p) const {
    return {left_ + (p.x - x_low_) / (x_high_ - x_low_) * width_,
            top_ + height_ - (p.y - y_low_) / (y_high_ - y_low_) * height_};
  }
  void curve(const Series& series) {
    std::vector<Point> points;
    for (const Point& p : series.points) points.push_back(place(p));
    canvas_.path(points, 1.8, series.color);
    if (!points.empty()) canvas_.dot(points.back(), 2.6, series.color);
  }
  void legend(const std::vector<Series>& list) {
    double x = left_ + width_;
    for (auto series = list.rbegin(); series != list.rend(); ++series) {
      canvas_.text({x, top_ - 14}, series->name, {10, kInk, Anchor::End});
      x -= 6.2 * static_cast<double>(series->name.size()) + 14;
      canvas_.rectangle({x, top_ - 21}, 8, 8, series->color);
      x -= 12;
    }
  }
  void bar(double center, double width, double value, Color color) {
    const Point low = place({center - width / 2, y_low_}),
                high = place({center + width / 2, std::clamp(value, y_low_, y_high_)});
    canvas_.rectangle({low.x, high.y}, high.x - low.x, low.y - high.y, color);
  }
  void shade(double from, double to) {
    const double a = place({from, y_low_}).x, b = place({to, y_low_}).x;
    canvas_.rectangle({a, top_}, std::max(1.0, b - a), height_, kCollapsed);
  }
  void level(double value, const std::string& words) {
    const double y = place({x_low_, value}).y;
    canvas_.path({{left_, y}, {left_ + width_, y}}, 1.2, kRed, true);
    canvas_.text({left_ + width_ - 2, y - 4}, words, {10, kRed, Anchor::End});
  }
  void note(double x, const std::string& words) {
    canvas_.text({place({x, y_low_}).x, top_ + height_ + 15}, words, {9, kQuiet, Anchor::Middle});
  }
  void empty() {
    canvas_.text({left_ + width_ / 2, top_ + height_ / 2}, "nothing recorded yet", {11, kQuiet, Anchor::Middle});
  }

 private:
  Canvas& canvas_;
  double left_, top_, width_, height_;
  double x_low_ = 0, x_high_ = 1, y_low_ = 0, y_high_ = 1;
};

void draw_heading(Canvas& canvas, const PosteriorPicture& picture, const std::string& what) {
  canvas.rectangle({0, 0}, kWidth, kHeight, {255, 255, 255});
  canvas.text({16, 26}, fmt::format("{}, step {}", what, picture.step), {15, kInk, Anchor::Start, true});
  const bool collapsed = picture.verdict.level != Collapse::None;
  std::string sentence = picture.verdict.sentence();
  if (sentence.size() > 150) sentence = sentence.substr(0, 147) + "...";
  canvas.text({16, 45}, sentence, {11, collapsed ? kRed : kQuiet});
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
  if (!std::isfinite(high)) return panel.empty();
  panel.axes(static_cast<double>(picture.history.front().step), static_cast<double>(picture.history.back().step), low,
             high);
  for (size_t i = 0; i < picture.history.size(); ++i) {
    if (picture.history[i].collapse == 0) continue;
    const double from = static_cast<double>(picture.history[i].step);
    const double to = i + 1 < picture.history.size() ? static_cast<double>(picture.history[i + 1].step) : from;
    panel.shade(from, to);
  }
  for (const Series& series : list) panel.curve(series);
  if (list.size() > 1) panel.legend(list);
}

std::string draw_history(std::unique_ptr<Canvas> canvas, const PosteriorPicture& picture) {
  draw_heading(*canvas, picture, "Posterior over the run");
  const double middle = kWidth / 2, lower = 60 + (kHeight - 60) / 2;
  draw_curves(*canvas, picture, {8, 60}, "KL and mutual information (nats)", true,
              {series_of(picture, "KL", kBlue, [](const HistoryPoint& p) { return p.kl; }),
               series_of(picture, "information", kTeal, [](const HistoryPoint& p) { return p.mutual_information; })});
  draw_curves(*canvas, picture, {middle + 4, 60}, fmt::format("Active units (of {})", picture.kl_per_dim.size()), true,
              {series_of(picture, "active units", kViolet,
                         [](const HistoryPoint& p) { return static_cast<double>(p.active_units); })});
  draw_curves(*canvas, picture, {8, lower}, "Reconstruction (nats per sequence)", false,
              {series_of(picture, "reconstruction", kAmber, [](const HistoryPoint& p) { return p.reconstruction; })});
  draw_curves(*canvas, picture, {middle + 4, lower}, "KL weight", true,
              {series_of(picture, "weight", kInk, [](const HistoryPoint& p) { return p.kl_weight; })});
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
    panel.bar(static_cast<double>(j), 0.72, values[j], active ? kBlue : kGrey);
    if (j % stride == 0) panel.note(static_cast<double>(j), std::to_string(j));
  }
  finish(panel);
}

std::string draw_dimensions(std::unique_ptr<Canvas> canvas, const PosteriorPicture& picture) {
  draw_heading(*canvas, picture, "Posterior by dimension");
  draw_bars(*canvas, picture, 60, "KL of each latent dimension (nats)", picture.kl_per_dim, 0.0, 0.1, [](Panel& panel) {
    panel.legend({{"active", kBlue, {}}, {"inactive", kGrey, {}}});
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
  return draw_history(make_svg(kWidth, kHeight, "Posterior over the run"), picture);
}
std::string history_png(const PosteriorPicture& picture) { return draw_history(make_png(kWidth, kHeight), picture); }
std::string dimensions_svg(const PosteriorPicture& picture) {
  return draw_dimensions(make_svg(kWidth, kHeight, "Posterior by dimension"), picture);
}
std::string dimensions_png(const PosteriorPicture& picture) {
  return draw_dimensions(make_png(kWidth, kHeight), picture);
}

}  // namespace redline::models::sequence_vae
