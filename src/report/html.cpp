// The report as one self-contained file: a content policy that forbids scripts and the network, inline SVG, every text
// escaped.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "core/strings.h"
#include "draw/escape.h"
#include "measure/phases.h"
#include "report/page.h"
#include "report/parts/chart.h"
#include "report/parts/pictures.h"
#include "report/parts/style.h"
#include "report/tuned.h"

namespace redline::report {

namespace {

using measure::StepRow;

std::string heading(const std::string& text) { return "<h2>" + draw::escape_html(text) + "</h2>"; }
std::string paragraph(const std::string& text) { return "<p>" + draw::escape_html(text) + "</p>"; }

// The last part of a path, where that tells the runs apart.
std::string label_of(const Page& page, const RunPart& run) {
  const auto last = [](const std::string& name) {
    const std::string file = std::filesystem::path(name).filename().string();
    return file.empty() ? name : file;
  };
  const auto same = [&](const RunPart& other) { return last(other.name) == last(run.name); };
  return std::count_if(page.runs.begin(), page.runs.end(), same) == 1 ? last(run.name) : run.name;
}

std::vector<Segment> phase_segments(const std::function<double(size_t)>& seconds) {
  std::vector<Segment> segments;
  for (size_t p = 0; p < measure::kNumPhases; ++p)
    segments.push_back(
        {std::string(measure::phase_name(static_cast<measure::Phase>(p))), seconds(p), static_cast<int>(p)});
  return segments;
}

std::string waterfall(const Page& page) {
  StackedBars chart{"Where a step's time goes (amortised)", {}};
  for (const RunPart& run : page.runs)
    chart.bars.emplace_back(label_of(page, run),
                            phase_segments([&](size_t p) { return run.seen.phases[p].seconds_per_step; }));
  return draw_stacked(chart);
}

std::string loader_stages(const Page& page) {
  StackedBars chart{"Inside the loader, worker time per step", {}};
  for (const RunPart& run : page.runs) {
    std::vector<Segment> segments;
    for (size_t s = 0; s < measure::kNumStages; ++s)
      segments.push_back({std::string(measure::stage_name(static_cast<measure::Stage>(s))),
                          run.seen.stage_seconds_per_step[s], static_cast<int>(s) + 4});
    chart.bars.emplace_back(label_of(page, run), std::move(segments));
  }
  return draw_stacked(chart);
}

std::string timeline(const Page& page, const RunPart& run) {
  StackedBars chart{"A few steps in a row: " + label_of(page, run), {}};
  const auto& rows = run.record.steps;
  const size_t begin = rows.size() > 12 ? rows.size() / 2 : 0;
  for (size_t i = begin; i < std::min(rows.size(), begin + 8); ++i)
    chart.bars.emplace_back("step " + std::to_string(rows[i].step),
                            phase_segments([&](size_t p) { return static_cast<double>(rows[i].phase_ns[p]) * 1e-9; }));
  return draw_stacked(chart);
}

std::string curve(const Page& page, const char* title, const char* x_label, const char* y_label,
                  const std::function<double(const StepRow&, double)>& x,
                  const std::function<double(const StepRow&)>& y) {
  LineChart chart{title, x_label, y_label, {}};
  constexpr int kColors[] = {2, 3, 5, 4, 1, 6};
  for (size_t r = 0; r < page.runs.size(); ++r) {
    Series series{label_of(page, page.runs[r]), {}, kColors[r % 6]};
    double seconds = 0;
    for (const StepRow& row : page.runs[r].record.steps) {
      seconds += static_cast<double>(row.wall_ns) * 1e-9;
      series.points.emplace_back(x(row, seconds), y(row));
    }
    chart.series.push_back(std::move(series));
  }
  return draw_lines(chart);
}

// A metric that is logged now and then, e.g. a validation's; nothing when no run has it.
std::string metric_curve(const Page& page, const std::string& metric, const char* title) {
  LineChart chart{title, "optimiser step", metric, {}};
  constexpr int kColors[] = {2, 3, 5, 4, 1, 6};
  for (size_t r = 0; r < page.runs.size(); ++r) {
    Series series{label_of(page, page.runs[r]), {}, kColors[r % 6]};
    for (const measure::MetricPoint& point : page.runs[r].record.metrics)
      if (point.name == metric) series.points.emplace_back(static_cast<double>(point.step), point.value);
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return chart.series.empty() ? "" : draw_lines(chart);
}

std::string curves(const Page& page) {
  const auto step = [](const StepRow& row, double) { return static_cast<double>(row.step); };
  const auto loss = [](const StepRow& row) { return row.loss; };
  std::string out = heading("Curves") + "<div class=\"grid2\">";
  out += curve(page, "Loss over steps", "optimiser step", "loss", step, loss);
  out += curve(
      page, "Loss over time", "seconds of training", "loss", [](const StepRow&, double seconds) { return seconds; },
      loss);
  out += metric_curve(page, "val_loss", "Validation loss");
  out += curve(page, "Speed", "optimiser step", "samples/s", step, [](const StepRow& row) {
    return row.wall_ns > 0 ? row.samples / (static_cast<double>(row.wall_ns) * 1e-9) : NAN;
  });
  out += curve(page, "Tensor memory, peak per step", "optimiser step", "MiB", step,
               [](const StepRow& row) { return static_cast<double>(row.peak_bytes) / 1048576.0; });
  out += curve(page, "Memory of the process", "optimiser step", "MiB", step,
               [](const StepRow& row) { return static_cast<double>(row.rss_bytes) / 1048576.0; });
  out += curve(page, "Padding", "optimiser step", "% of a batch", step, [](const StepRow& row) {
    return row.padded_items > 0 ? 100.0 * (1.0 - static_cast<double>(row.items) / static_cast<double>(row.padded_items))
                                : NAN;
  });
  return out + "</div>";
}

std::string overview(const Page& page) {
  std::string out =
      "<div "
      "class=\"scroll\"><table><tr><th>run</th><th>steps</th><th>samples/s</th><th>iterations/s</th><th>step</"
      "th><th>waiting for data</th><th>padding</th><th>peak memory</th></tr>";
  for (const RunPart& run : page.runs)
    out += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}</td><td "
        "class=\"n\">{}</td><td class=\"n\">{:.1f} %</td><td class=\"n\">{:.1f} %</td><td class=\"n\">{}</td></tr>",
        draw::escape_html(label_of(page, run)), run.seen.steps, run.seen.samples_per_second,
        run.seen.iterations_per_second, format_seconds(run.seen.step_seconds),
        100 * run.seen.phase(measure::Phase::Wait).share, 100 * run.seen.padding_share,
        format_bytes(static_cast<uint64_t>(run.seen.peak_bytes)));
  return out + "</table></div>";
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string diagnosis_section(const Page& page, const RunPart& run) {
  const doctor::Diagnosis& diagnosis = *run.diagnosis;
  std::string out = heading(page.runs.size() > 1 ? "Diagnosis of " + label_of(page, run) : "Diagnosis") +
                    paragraph(fmt::format("{} (confidence {:.0f} %)", diagnosis.sentence, 100 * diagnosis.confidence));
  if (!diagnosis.ceilings.empty()) {
    IntervalChart chart{"Ceilings: what making one part free would gain at most", "", {}};
    for (const doctor::Ceiling& ceiling : diagnosis.ceilings)
      if (ceiling.kind != doctor::ExperimentKind::LoaderOnly)
        chart.bars.push_back({words(doctor::experiment_name(ceiling.kind)), 100 * ceiling.gain(),
                              100 * (ceiling.speed.interval.low - 1), 100 * (ceiling.speed.interval.high - 1), true, 0,
                              false});
    out += draw_intervals(chart) + "<ul>";
    for (const doctor::Ceiling& ceiling : diagnosis.ceilings)
      out += "<li>" + draw::escape_html(ceiling.sentence) + "</li>";
    out += "</ul>";
  }
  // The gain first: on a phone the rest scrolls.
  out +=
      "<div class=\"scroll\"><table><tr><th>gain, predicted</th><th>switch</th><th>value</th><th>changes</th>"
      "<th>why</th></tr>";
  for (const doctor::Candidate& suggestion : diagnosis.suggestions)
    out += fmt::format(
        "<tr><td class=\"n\">{:+.1f} % ({:+.0f} to {:+.0f})</td><td><code>{}</code></td><td>{}</td><td>{}</td><td "
        "class=\"why\">{}</td></tr>",
        100 * suggestion.predicted_gain, 100 * suggestion.predicted_interval().low,
        100 * suggestion.predicted_interval().high, draw::escape_html(suggestion.field),
        draw::escape_html(suggestion.to), config::effect_name(suggestion.effect), draw::escape_html(suggestion.reason));
  out += "</table></div>";
  for (const doctor::Trap& trap : diagnosis.traps) out += paragraph("Note: " + trap.sentence);
  return out;
}

std::string ranks_section(const Page& page, const RunPart& run) {
  if (!run.ranks) return {};
  std::string out = heading(page.runs.size() > 1 ? "Ranks of " + label_of(page, run) : "Ranks") +
                    "<div class=\"scroll\"><table><tr><th>rank</th><th>own work</th><th>waits for others</th>";
  constexpr measure::Phase kShown[] = {measure::Phase::Wait, measure::Phase::Copy, measure::Phase::Forward,
                                       measure::Phase::Backward, measure::Phase::Optimiser};
  for (const measure::Phase phase : kShown) out += fmt::format("<th>{}</th>", measure::phase_name(phase));
  out += "</tr>";
  for (const doctor::RankLine& line : run.ranks->ranks) {
    out += fmt::format("<tr><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>", line.rank,
                       format_seconds(line.own_seconds), format_seconds(line.wait_seconds));
    for (const measure::Phase phase : kShown)
      out += fmt::format("<td class=\"n\">{}</td>", format_seconds(line.phase_seconds[static_cast<size_t>(phase)]));
    out += "</tr>";
  }
  out += "</table></div><ul>";
  for (const std::string& sentence : run.ranks->sentences) out += "<li>" + draw::escape_html(sentence) + "</li>";
  return out + "</ul>";
}

std::string operators_section(const RunPart& run) {
  if (run.operators.empty()) return {};
  std::string out =
      "<h2>Operators of one step</h2><div class=\"scroll\"><table><tr><th>operator</th><th>calls</th><th>own "
      "time</th><th>share</th><th>of the measured peak</th></tr>";
  for (size_t i = 0; i < std::min<size_t>(20, run.operators.size()); ++i) {
    const doctor::OperatorLine& line = run.operators[i];
    out += fmt::format(
        "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1f} %</td><td "
        "class=\"n\">{}</td></tr>",
        draw::escape_html(line.name), line.calls, format_seconds(line.seconds), 100 * line.share,
        line.share_of_peak >= 0 ? fmt::format("{:.0f} %", 100 * line.share_of_peak) : "");
  }
  return out + "</table></div>";
}

std::string field_text(const measure::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

std::string events_section(const RunPart& run) {
  std::string rows;
  size_t shown = 0, guards = 0;
  for (const measure::Event& event : run.record.events) {
    if (!event.kind.starts_with("guard.") && !event.kind.starts_with("drift.")) continue;
    ++guards;
    if (++shown > 200) continue;
    std::string text;
    for (const auto& [name, value] : event.fields) text += name + "=" + field_text(value) + " ";
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>", draw::escape_html(event.time),
                        draw::escape_html(event.kind), draw::escape_html(text));
  }
  if (guards == 0) return paragraph("No guard had to act in " + run.name + ".");
  return fmt::format("<p>{} guard events in {}{}.</p>", guards, draw::escape_html(run.name),
                     guards > 200 ? ", the first 200 shown" : "") +
         "<div class=\"scroll\"><table><tr><th>time</th><th>event</th><th>details</th></tr>" + rows + "</table></div>";
}

std::string folded(const std::string& title, const std::string& text) {
  if (text.empty()) return {};
  std::string lines;
  for (const std::string& line : split(text, '\n')) lines += draw::escape_html(line) + "\n";
  return "<details><summary>" + draw::escape_html(title) + "</summary><div class=\"scroll\"><pre><code>" + lines +
         "</code></pre></div></details>";
}

}  // namespace

std::string render_html(const Page& page) {
  std::string out =
      "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src "
      "data:\">"
      "<link rel=\"icon\" href=\"data:,\"><title>redline report</title><style>";
  out += style_sheet();
  out += "</style></head><body><main><h1>redline report</h1><p class=\"summary\">" +
         draw::escape_html(page.summary.empty() ? default_summary(page) : page.summary) + "</p>";
  constexpr const char* kEnd =
      "<footer>Made by redline. This file loads nothing from elsewhere.</footer></main></body></html>\n";
  // A tuner's page has its card and no run.
  if (std::all_of(page.runs.begin(), page.runs.end(),
                  [](const RunPart& run) { return run.card && run.record.directory.empty() && run.seen.steps == 0; })) {
    for (const RunPart& run : page.runs)
      if (run.card) out += tuned_html(*run.card);
    return out + kEnd;
  }
  out += overview(page) + heading("The step") + waterfall(page) + loader_stages(page);
  for (const RunPart& run : page.runs) out += timeline(page, run);
  for (const RunPart& run : page.runs)
    if (run.diagnosis) out += diagnosis_section(page, run);
  for (const RunPart& run : page.runs) out += ranks_section(page, run);
  for (const RunPart& run : page.runs) out += operators_section(run);
  for (const RunPart& run : page.runs)
    if (run.card) out += tuned_html(*run.card);
  out += curves(page);
  for (const RunPart& run : page.runs)
    if (const std::string pictures = pictures_html(run.record.directory, run.name); !pictures.empty())
      out += heading("What the monitor drew") + pictures;
  out += heading("Guards");
  for (const RunPart& run : page.runs) out += events_section(run);
  out += heading("Configuration and machine");
  for (const RunPart& run : page.runs) {
    out += folded("Configuration of " + run.name + ", with the origin of every value", run.record.config_yaml);
    out += folded("Machine of " + run.name, run.record.machine_json);
    for (const std::string& warning : run.record.warnings) out += paragraph("Record of " + run.name + ": " + warning);
  }
  return out + kEnd;
}

}  // namespace redline::report
