// Bars as HTML boxes whose widths are shares: text keeps its size whatever the width of the page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "draw/escape.h"
#include "draw/ticks.h"
#include "report/parts/chart.h"

namespace redline::report {

namespace {

double total_of(const std::vector<Segment>& segments) {
  double total = 0;
  for (const Segment& segment : segments) total += segment.seconds;
  return total;
}

std::string figure(const char* kind, const std::string& title, const std::string& body) {
  return fmt::format("<figure class=\"{}\"><figcaption>{}</figcaption>{}</figure>", kind, draw::escape_html(title),
                     body);
}

// What each colour means; with one bar also how much it is.
std::string stacked_legend(const StackedBars& chart) {
  std::vector<std::pair<std::string, int>> keys;
  for (const auto& [label, segments] : chart.bars) {
    const double total = total_of(segments);
    for (const Segment& segment : segments) {
      if (!(segment.seconds > 0)) continue;
      const std::string name = chart.bars.size() > 1
                                   ? segment.name
                                   : fmt::format("{} {} ({:.1f} %)", segment.name, format_seconds(segment.seconds),
                                                 100 * segment.seconds / total);
      const std::pair<std::string, int> key{name, segment.color};
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return legend(keys);
}

}  // namespace

std::string draw_stacked(const StackedBars& chart) {
  double longest = 0;
  for (const auto& [label, segments] : chart.bars) longest = std::max(longest, total_of(segments));
  std::string body;
  for (const auto& [label, segments] : chart.bars) {
    body += fmt::format("<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track\">",
                        draw::escape_html(label));
    for (const Segment& segment : segments) {
      if (!(segment.seconds > 0)) continue;
      body += fmt::format("<i class=\"c{}\" style=\"width:{:.2f}%\" title=\"{}: {}\"></i>", segment.color,
                          100 * segment.seconds / longest, draw::escape_html(segment.name),
                          format_seconds(segment.seconds));
    }
    body += fmt::format("</span><span class=\"total\">{}</span></div>", format_seconds(total_of(segments)));
  }
  return figure("bars", chart.title, body + stacked_legend(chart));
}

std::string draw_intervals(const IntervalChart& chart) {
  double low = 0, high = 0;
  for (const IntervalBar& bar : chart.bars) {
    low = std::min({low, bar.value, bar.has_marker ? bar.marker : 0});
    high = std::max({high, bar.value, bar.has_marker ? bar.marker : 0});
  }
  // One wild interval must not flatten all others: whiskers beyond this are cut at the edge.
  const double most = 1.5 * std::max(high - low, 5.0);
  for (const IntervalBar& bar : chart.bars) {
    if (!bar.has_interval) continue;
    low = std::min(low, std::max(bar.low, -most));
    high = std::max(high, std::min(bar.high, most));
  }
  if (!(high - low > 1e-9)) high = low + 1;
  const double margin = 0.04 * (high - low);
  low -= low < 0 ? margin : 0;
  high += margin;
  const auto at = [&](double value) { return 100 * (value - low) / (high - low); };
  std::string body;
  for (const IntervalBar& bar : chart.bars) {
    body += fmt::format("<div class=\"bar\"><span class=\"name\">{}</span><span class=\"track line\">",
                        draw::escape_html(bar.name));
    body += fmt::format("<i class=\"zero\" style=\"left:{:.2f}%\"></i>", at(0));
    body += fmt::format("<i class=\"box c{}\" style=\"left:{:.2f}%;width:{:.2f}%\"></i>", bar.value >= 0 ? 2 : 3,
                        at(std::min(0.0, bar.value)), std::max(0.3, std::abs(at(bar.value) - at(0))));
    if (bar.has_interval) {
      const double from = std::clamp(at(bar.low), 0.0, 100.0), to = std::clamp(at(bar.high), 0.0, 100.0);
      body +=
          fmt::format("<i class=\"whisker\" style=\"left:{:.2f}%;width:{:.2f}%\" title=\"{:+.1f} to {:+.1f} %\"></i>",
                      from, to - from, bar.low, bar.high);
    }
    if (bar.has_marker) body += fmt::format("<i class=\"marker\" style=\"left:{:.2f}%\"></i>", at(bar.marker));
    body += fmt::format("</span><span class=\"total\">{:+.1f} %</span></div>", bar.value);
  }
  if (!chart.bars.empty()) {
    body += "<div class=\"bar axis\"><span class=\"name\"></span><span class=\"track line\">";
    for (double value : draw::ticks_within(low, high, 4))
      body += fmt::format("<b style=\"left:{:.2f}%\">{:+.4g} %</b>", at(value), value);
    body += "</span><span class=\"total\"></span></div>";
  }
  if (!chart.marker_name.empty())
    body +=
        "<p class=\"legend\"><span><i class=\"key mark\"></i>" + draw::escape_html(chart.marker_name) + "</span></p>";
  return figure("bars", chart.title, body);
}

}  // namespace redline::report
