#include "report/parts/curves.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "core/strings.h"
#include "measure/statistics.h"
#include "report/parts/chart.h"

namespace redline::report {

namespace {

using measure::StepRow;

constexpr int kColors[] = {2, 3, 5, 4, 1, 6};
constexpr size_t kBandBlocks = 100;

// Where a step lies on each of the three axes.
struct Axis {
  const char *id, *title, *label;
  std::function<double(double step, double samples, double seconds)> at;
};

const std::vector<Axis>& curve_axes() {
  static const std::vector<Axis> all = {
      {"step", "Steps", "step", [](double step, double, double) { return step; }},
      {"samples", "Samples", "samples", [](double, double samples, double) { return samples; }},
      {"time", "Time", "seconds", [](double, double, double seconds) { return seconds; }}};
  return all;
}

// A run with its axis counted out once.
struct Counted {
  const RunPart* run;
  std::string label;
  int color;
  std::vector<double> samples, seconds;  // up to and with each row
};

Counted count(const RunPart& run, const std::string& label, int color) {
  Counted out{&run, label, color, {}, {}};
  double samples = 0, seconds = 0;
  for (const StepRow& row : run.record.steps) {
    out.samples.push_back(samples += row.samples);
    out.seconds.push_back(seconds += static_cast<double>(row.wall_ns) * 1e-9);
  }
  return out;
}

double x_of(const Counted& run, size_t row, const Axis& axis) {
  return axis.at(static_cast<double>(run.run->record.steps[row].step), run.samples[row], run.seconds[row]);
}

// The row of a step, or of the last one before it.
std::optional<size_t> row_of(const Counted& run, int64_t step) {
  const auto& rows = run.run->record.steps;
  const auto after =
      std::upper_bound(rows.begin(), rows.end(), step, [](int64_t s, const StepRow& row) { return s < row.step; });
  if (after == rows.begin()) return std::nullopt;
  return static_cast<size_t>(after - rows.begin()) - 1;
}

using RowValue = std::function<double(const StepRow&)>;

std::vector<double> values_of(const Counted& run, const RowValue& value) {
  std::vector<double> values;
  for (const StepRow& row : run.run->record.steps) values.push_back(value(row));
  return values;
}

Series series_of(const Counted& run, const std::vector<double>& values, const Axis& axis, const std::string& name,
                 Look look) {
  Series series{name, {}, run.color, look, {}};
  for (size_t i = 0; i < values.size(); ++i) series.points.emplace_back(x_of(run, i, axis), values[i]);
  return series;
}

std::string event_field_text(const measure::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

// Checkpoints, resumes, guards: where they are on the axis.
std::vector<Marker> markers_of(const Counted& run, const Axis& axis) {
  std::vector<Marker> markers;
  for (const measure::Event& event : run.run->record.events) {
    const bool guard = event.kind.starts_with("guard.") || event.kind.starts_with("drift.");
    if (event.kind != "checkpoint.saved" && event.kind != "resumed" && !guard) continue;
    const measure::FieldValue* step = event.find("step");
    const auto* number = step != nullptr ? std::get_if<int64_t>(step) : nullptr;
    const auto row = number != nullptr ? row_of(run, *number) : std::nullopt;
    if (!row) continue;
    const char* what = guard ? event.kind.c_str() : event.kind == "resumed" ? "resumed" : "checkpoint";
    markers.push_back({x_of(run, *row, axis), fmt::format("{} at step {}", what, event_field_text(*step)),
                       guard                     ? 3
                       : event.kind == "resumed" ? 4
                                                 : 0});
  }
  return markers;
}

std::string loss_chart(const std::vector<Counted>& runs, const Axis& axis) {
  LineChart chart{"Loss", axis.label, "loss", {}, {}};
  for (const Counted& run : runs) {
    const std::vector<double> raw = values_of(run, [](const StepRow& row) { return row.loss; });
    const std::vector<double> smooth = smoothed(raw, std::max<double>(5.0, static_cast<double>(raw.size()) / 50));
    chart.series.push_back(series_of(run, raw, axis, "", Look::Faint));
    chart.series.push_back(series_of(run, smooth, axis, runs.size() > 1 ? run.label : "loss", Look::Line));
    Series dots{runs.size() > 1 ? "" : "val_loss", {}, runs.size() > 1 ? run.color : 3, Look::Dots, {}};
    for (const measure::MetricPoint& point : run.run->record.metrics)
      if (const auto row = row_of(run, point.step); row && point.name == "val_loss" && std::isfinite(point.value))
        dots.points.emplace_back(x_of(run, *row, axis), point.value);
    if (!dots.points.empty()) chart.series.push_back(std::move(dots));
    if (runs.size() == 1) chart.markers = markers_of(run, axis);
  }
  return draw_lines(chart);
}

// The middle of a block of steps, with the band that holds eight in ten of them.
std::string speed_chart(const std::vector<Counted>& runs, const Axis& axis) {
  LineChart chart{"Speed: median, and where eight of ten steps lie", axis.label, "samples/s", {}, {}};
  for (const Counted& run : runs) {
    const auto& rows = run.run->record.steps;
    Series series{runs.size() > 1 ? run.label : "", {}, run.color, Look::Line, {}};
    const size_t blocks = std::min(kBandBlocks, std::max<size_t>(1, rows.size() / 3));
    for (size_t b = 0; b < blocks && !rows.empty(); ++b) {
      const size_t begin = b * rows.size() / blocks, end = (b + 1) * rows.size() / blocks;
      std::vector<double> rates;
      for (size_t i = begin; i < end; ++i)
        if (rows[i].wall_ns > 0) rates.push_back(rows[i].samples / (static_cast<double>(rows[i].wall_ns) * 1e-9));
      if (rates.empty()) continue;
      series.points.emplace_back(x_of(run, (begin + end) / 2, axis), measure::median(rates));
      series.band.emplace_back(measure::quantile(rates, 0.1), measure::quantile(rates, 0.9));
    }
    chart.series.push_back(std::move(series));
  }
  return draw_lines(chart);
}

std::string row_chart(const std::vector<Counted>& runs, const Axis& axis, const char* title, const char* unit,
                      const RowValue& value) {
  LineChart chart{title, axis.label, unit, {}, {}};
  bool any = false;
  for (const Counted& run : runs) {
    const std::vector<double> values = values_of(run, value);
    any = any || std::any_of(values.begin(), values.end(), [](double v) { return std::isfinite(v) && v != 0; });
    chart.series.push_back(series_of(run, values, axis, runs.size() > 1 ? run.label : "", Look::Line));
  }
  return any ? draw_lines(chart) : "";
}

std::string charts(const std::vector<Counted>& runs, const Axis& axis) {
  constexpr double kMiB = 1048576.0;
  std::string out = loss_chart(runs, axis) + speed_chart(runs, axis);
  out += row_chart(runs, axis, "Learning rate", "learning rate", [](const StepRow& row) { return row.learning_rate; });
  out +=
      row_chart(runs, axis, "Gradient norm, before clipping", "norm", [](const StepRow& row) { return row.grad_norm; });
  out += row_chart(runs, axis, "Tensor memory, peak of a step", "MiB",
                   [](const StepRow& row) { return static_cast<double>(row.peak_bytes) / kMiB; });
  out += row_chart(runs, axis, "Memory of the process", "MiB",
                   [](const StepRow& row) { return static_cast<double>(row.rss_bytes) / kMiB; });
  out += row_chart(runs, axis, "Padding", "% of a batch", [](const StepRow& row) {
    return row.padded_items > 0 ? 100.0 * (1.0 - static_cast<double>(row.items) / static_cast<double>(row.padded_items))
                                : NAN;
  });
  return out;
}

}  // namespace

std::vector<double> smoothed(const std::vector<double>& values, double window) {
  const double keep = 1.0 - 2.0 / (std::max(1.0, window) + 1.0);
  std::vector<double> out;
  double average = 0, weight = 0;
  for (const double value : values) {
    if (std::isfinite(value)) {
      average = keep * average + (1 - keep) * value;
      weight = keep * weight + (1 - keep);
    }
    out.push_back(weight > 0 ? average / weight : NAN);
  }
  return out;
}

std::string draw_curves(const Page& page, const std::vector<std::string>& labels) {
  std::vector<Counted> runs;
  for (size_t r = 0; r < page.runs.size(); ++r)
    if (!page.runs[r].record.steps.empty()) runs.push_back(count(page.runs[r], labels[r], kColors[r % 6]));
  if (runs.empty()) return "";
  // Radio buttons before the three grids: the style sheet shows the grid of the one that is on.
  std::string out = "<div class=\"axes\">";
  for (const Axis& axis : curve_axes())
    out += fmt::format("<input type=\"radio\" name=\"axis\" id=\"axis-{0}\"{1}><label for=\"axis-{0}\">{2}</label>",
                       axis.id, std::string_view(axis.id) == "step" ? " checked" : "", axis.title);
  for (const Axis& axis : curve_axes())
    out += fmt::format("<div class=\"grid2 by-{}\">", axis.id) + charts(runs, axis) + "</div>";
  return out + "</div>";
}

}  // namespace redline::report
