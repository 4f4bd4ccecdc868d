// The report as one self-contained file: a content policy that forbids scripts and the network, inline SVG, every text
// escaped.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>

#include "core/strings.h"
#include "draw/escape.h"
#include "measure/phases.h"
#include "report/page.h"
#include "report/parts/chart.h"
#include "report/parts/config_keys.h"
#include "report/parts/curves.h"
#include "report/parts/pictures.h"
#include "report/parts/style.h"
#include "report/parts/table.h"
#include "report/parts/tiles.h"
#include "report/tuned.h"

namespace redline::report {

namespace {

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

// Several runs are compared by the sample: their steps may hold different numbers of them.
double share_of_step(const Page& page, const RunPart& run) {
  return page.runs.size() > 1 && run.seen.samples_per_step > 0 ? 1.0 / run.seen.samples_per_step : 1.0;
}

std::string waterfall(const Page& page) {
  StackedBars chart{
      page.runs.size() > 1 ? "Where the time of a sample goes (amortised)" : "Where a step's time goes (amortised)",
      {}};
  for (const RunPart& run : page.runs)
    chart.bars.emplace_back(label_of(page, run), phase_segments([&](size_t p) {
                              return run.seen.phases[p].seconds_per_step * share_of_step(page, run);
                            }));
  return draw_stacked(chart);
}

std::string loader_stages(const Page& page) {
  StackedBars chart{
      page.runs.size() > 1 ? "Inside the loader, worker time of a sample" : "Inside the loader, worker time of a step",
      {}};
  for (const RunPart& run : page.runs) {
    std::vector<Segment> segments;
    for (size_t s = 0; s < measure::kNumStages; ++s)
      segments.push_back({std::string(measure::stage_name(static_cast<measure::Stage>(s))),
                          run.seen.stage_seconds_per_step[s] * share_of_step(page, run), static_cast<int>(s) + 4});
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

std::string overview(const Page& page) {
  HtmlTable table({{"run", ""},
                   {"steps", "n"},
                   {"samples/s", "n"},
                   {"steps/s", "n"},
                   {"step", "n"},
                   {"waiting for data", "n"},
                   {"padding", "n"},
                   {"peak tensor memory", "n"}});
  for (const RunPart& run : page.runs)
    table.add({draw::escape_html(label_of(page, run)), std::to_string(run.seen.steps),
               fmt::format("{:.2f}", run.seen.samples_per_second), fmt::format("{:.2f}", run.seen.steps_per_second()),
               format_seconds(run.seen.step_seconds),
               fmt::format("{:.1f} %", 100 * run.seen.phase(measure::Phase::Wait).share),
               fmt::format("{:.1f} %", 100 * run.seen.padding_share),
               format_bytes(static_cast<uint64_t>(run.seen.peak_bytes))});
  return table.markup();
}

std::string fold(const std::string& title, const std::string& markup) {
  return "<details><summary>" + draw::escape_html(title) + "</summary>" + markup + "</details>";
}

// Of several runs what differs, of one what was set.
std::string settings_section(const Page& page) {
  if (page.runs.size() < 2) {
    HtmlTable table({{"setting", "switch"}, {"from", ""}});
    for (const auto& [setting, origin] : keys_that_were_set(page.runs[0].record.config_yaml))
      table.add({"<code>" + draw::escape_html(setting) + "</code>", draw::escape_html(origin)});
    return table.empty() ? "" : fold(fmt::format("{} settings that were set", table.size()), table.markup());
  }
  std::vector<std::string> configs;
  std::vector<Column> columns = {{"setting", "switch"}};
  for (const RunPart& run : page.runs) {
    configs.push_back(run.record.config_yaml);
    columns.push_back({label_of(page, run), ""});
  }
  HtmlTable table(columns);
  for (const DifferentKey& key : different_keys(configs)) {
    std::vector<std::string> cells = {"<code>" + draw::escape_html(key.key) + "</code>"};
    for (const std::string& value : key.values) cells.push_back(draw::escape_html(value));
    table.add(std::move(cells));
  }
  if (table.empty()) return heading("Settings") + paragraph("The runs have the same settings.");
  return heading("Settings that differ") + table.markup();
}

std::string words(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

constexpr double kWorthShowing = 0.005, kTooWide = 1.0;

std::string gain_cell(const doctor::Candidate& suggestion) {
  const auto interval = suggestion.predicted_interval();
  if (interval.high - interval.low > kTooWide) return "too uncertain to say";
  return fmt::format("{:+.1f} % ({:+.0f} to {:+.0f})", 100 * suggestion.predicted_gain, 100 * interval.low,
                     100 * interval.high);
}

std::string diagnosis_section(const Page& page, const RunPart& run) {
  const doctor::Diagnosis& diagnosis = *run.diagnosis;
  std::string out = heading(page.runs.size() > 1 ? "Diagnosis of " + label_of(page, run) : "Diagnosis") +
                    paragraph(fmt::format("{} (confidence {:.0f} %)", diagnosis.sentence, 100 * diagnosis.confidence));
  if (!diagnosis.cure.empty()) out += paragraph("What to do: " + diagnosis.cure);
  if (!diagnosis.unseen.empty()) out += paragraph("Not to be seen here: " + diagnosis.unseen + ".");
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
  const std::vector<Column> columns = {
      {"gain, predicted", "n"}, {"switch", ""}, {"value", ""}, {"changes", ""}, {"why", "why"}};
  HtmlTable worth(columns), small(columns);
  for (const doctor::Candidate& suggestion : diagnosis.suggestions) {
    HtmlTable& table = suggestion.predicted_gain >= kWorthShowing ? worth : small;
    table.add({gain_cell(suggestion), "<code>" + draw::escape_html(suggestion.field) + "</code>",
               draw::escape_html(suggestion.to), config::effect_name(suggestion.effect),
               draw::escape_html(suggestion.reason)});
  }
  if (!worth.empty()) out += worth.markup();
  if (worth.empty()) out += paragraph("No switch is expected to gain half a percent or more.");
  if (!small.empty())
    out += fold(fmt::format("{} switches below {:.1f} %", small.size(), 100 * kWorthShowing), small.markup());
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
  HtmlTable table(
      {{"operator", ""}, {"calls", "n"}, {"own time", "n"}, {"share", "n"}, {"of the measured peak", "n"}, {"in", ""}});
  for (size_t i = 0; i < std::min<size_t>(20, run.operators.size()); ++i) {
    const doctor::OperatorLine& line = run.operators[i];
    table.add({"<code>" + draw::escape_html(line.name) + "</code>", std::to_string(line.calls),
               format_seconds(line.seconds), fmt::format("{:.1f} %", 100 * line.share),
               line.share_of_peak >= 0 ? fmt::format("{:.0f} %", 100 * line.share_of_peak) : "",
               line.fell_back ? "<strong>" + line.number + "</strong>" : line.number});
  }
  return heading("Operators of one step") + table.markup();
}

std::string field_text(const measure::FieldValue& value) {
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

std::string events_section(const RunPart& run) {
  HtmlTable table({{"time", ""}, {"event", ""}, {"details", "why"}});
  size_t guards = 0;
  for (const measure::Event& event : run.record.events) {
    if (!event.kind.starts_with("guard.") && !event.kind.starts_with("drift.")) continue;
    if (++guards > 200) continue;
    std::string text;
    for (const auto& [name, value] : event.fields) text += name + "=" + field_text(value) + " ";
    table.add({draw::escape_html(event.time), draw::escape_html(event.kind), draw::escape_html(text)});
  }
  if (guards == 0) return paragraph("No guard had to act in " + run.name + ".");
  return paragraph(
             fmt::format("{} guard events in {}{}.", guards, run.name, guards > 200 ? ", the first 200 shown" : "")) +
         table.markup();
}

// What the page is called in a tab and a list of files.
std::string title_of(const Page& page) {
  std::vector<std::string> names;
  for (const RunPart& run : page.runs) names.push_back(label_of(page, run));
  if (names.empty()) return "redline";
  if (names.size() > 3) return fmt::format("{} and {} more runs", names[0], names.size() - 1);
  return join(names, names.size() == 2 ? " → " : ", ");
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
      "<link rel=\"icon\" href=\"data:,\"><title>" +
      draw::escape_html(title_of(page)) + " · redline</title><style>";
  out += style_sheet();
  out += "</style></head><body><main><h1>" + draw::escape_html(title_of(page)) + "</h1><p class=\"summary\">" +
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
  std::vector<std::string> labels;
  for (const RunPart& run : page.runs) labels.push_back(label_of(page, run));
  for (const RunPart& run : page.runs)
    out += (page.runs.size() > 1 ? "<h3>" + draw::escape_html(label_of(page, run)) + "</h3>" : "") +
           draw_tiles(run_tiles(run));
  if (page.runs.size() > 1) out += overview(page);
  out += settings_section(page) + heading("Curves") + draw_curves(page, labels) + heading("The step") +
         waterfall(page) + loader_stages(page);
  for (const RunPart& run : page.runs) out += timeline(page, run);
  for (const RunPart& run : page.runs)
    if (run.diagnosis) out += diagnosis_section(page, run);
  for (const RunPart& run : page.runs) out += ranks_section(page, run);
  for (const RunPart& run : page.runs) out += operators_section(run);
  for (const RunPart& run : page.runs)
    if (run.card) out += tuned_html(*run.card);
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
