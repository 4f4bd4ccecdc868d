// redline runs [FOLDER]: the runs in a folder, a line each.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/terminal.h"
#include "core/error.h"
#include "core/strings.h"
#include "doctor/observation.h"
#include "doctor/verdict.h"
#include "measure/run_glance.h"

namespace redline::app {

void add_runs_command(CLI::App& program, const Globals& globals);

namespace {

struct RunsArguments {
  std::string folder = "runs", sort = "time";
};

struct ListedRun {
  std::string name;
  measure::RunGlance seen;
  std::string verdict;
};

double age_seconds(const measure::RunGlance& run) {
  const auto now = std::filesystem::file_time_type::clock::now();
  return std::max(0.0, std::chrono::duration<double>(now - run.written).count());
}

// From the last steps alone: what a glance can tell. `redline report` looks at the whole run.
std::string verdict_of(const measure::RunGlance& run) {
  if (run.rows.size() < 8) return "";
  const doctor::Observation seen = doctor::observe(run.rows);
  doctor::JobView job;
  job.computes_padding = seen.costs.known;  // what a glance does not know, it does not blame
  const doctor::Diagnosis found = doctor::diagnose(job, seen, {}, {});
  return found.limit == doctor::Limit::Unknown ? "" : doctor::limit_name(found.limit);
}

std::string progress_of(const measure::RunGlance& run) {
  if (run.max_steps > 0) return fmt::format("{}/{}", run.step, run.max_steps);
  if (run.max_epochs > 0) return fmt::format("{}, epoch {}/{}", run.step, run.epoch + 1, run.max_epochs);
  return std::to_string(run.step);
}

std::optional<double> loss_of(const measure::RunGlance& run) {
  if (run.rows.empty()) return std::nullopt;
  return run.rows.back().loss;
}

std::optional<double> validation_of(const measure::RunGlance& run) {
  const auto found = run.validation.find("val_loss");
  if (found != run.validation.end()) return found->second;
  return std::nullopt;
}

// Columns of a terminal: two for the letters of East Asia (U+3000 to U+DFFF) and for pictures.
size_t columns_of(const std::string& text) {
  size_t count = 0;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if ((byte & 0xC0) != 0x80) count += byte == 0xF0 || (byte >= 0xE3 && byte <= 0xED) ? 2 : 1;
  }
  return count;
}

std::string ago(double seconds) { return seconds < 1 ? "now" : format_seconds(std::round(seconds)) + " ago"; }

std::string number(const std::optional<double>& value) { return value ? fmt::format("{:.4g}", *value) : "-"; }

void sort_runs(std::vector<ListedRun>& runs, const std::string& by) {
  const auto key = [&](const ListedRun& run) -> double {
    if (by == "loss") return validation_of(run.seen).value_or(loss_of(run.seen).value_or(INFINITY));
    if (by == "speed") return -run.seen.samples_per_second();
    if (by == "steps") return -static_cast<double>(run.seen.step);
    return age_seconds(run.seen);
  };
  if (by == "name") return;  // as they were found
  std::stable_sort(runs.begin(), runs.end(), [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

nlohmann::json run_json(const ListedRun& run) {
  const measure::RunGlance& seen = run.seen;
  nlohmann::json out = {{"name", run.name},
                        {"directory", seen.directory.string()},
                        {"task", seen.task},
                        {"state", measure::run_phase_name(seen.phase)},
                        {"ended", seen.ended},
                        {"step", seen.step},
                        {"epoch", seen.epoch},
                        {"precision", seen.precision},
                        {"samples_per_second", seen.samples_per_second()},
                        {"verdict", run.verdict},
                        {"seconds_since_written", age_seconds(seen)},
                        {"validation", seen.validation}};
  if (seen.max_steps > 0) out["max_steps"] = seen.max_steps;
  if (seen.max_epochs > 0) out["max_epochs"] = seen.max_epochs;
  if (const auto loss = loss_of(seen)) out["loss"] = *loss;
  return out;
}

using Line = std::vector<std::string>;

std::vector<size_t> widths_of(const std::vector<Line>& lines) {
  std::vector<size_t> widths(lines[0].size(), 0);
  for (const Line& line : lines)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], columns_of(line[c]));
  return widths;
}

constexpr size_t kGap = 2;

// On a terminal that is too narrow: what matters least goes first, then a long name's beginning (its end tells runs
// apart).
void fit_lines(std::vector<Line>& lines, size_t width) {
  const auto total = [&] {
    size_t sum = 0;
    for (const size_t one : widths_of(lines)) sum += one + kGap;
    return sum - kGap;
  };
  for (const char* title : {"limit", "written", "samples/s", "val_loss", "loss"}) {
    if (total() <= width) return;
    const auto at = std::find(lines[0].begin(), lines[0].end(), title) - lines[0].begin();
    for (Line& line : lines) line.erase(line.begin() + at);
  }
  const size_t names = widths_of(lines)[0], over = total() > width ? total() - width : 0;
  const size_t room = std::max<size_t>(8, names - std::min(names, over));
  for (Line& line : lines) {
    std::string& name = line[0];
    if (columns_of(name) <= room) continue;
    size_t begin = 0;
    while (columns_of(name.substr(begin)) > room - 2 || (begin < name.size() && (name[begin] & 0xC0) == 0x80)) ++begin;
    name = ".." + name.substr(begin);
  }
}

void print_runs(const std::vector<ListedRun>& runs) {
  std::vector<Line> lines = {{"run", "state", "steps", "loss", "val_loss", "samples/s", "limit", "written"}};
  for (const ListedRun& run : runs)
    lines.push_back({printable(run.name), measure::run_phase_name(run.seen.phase), progress_of(run.seen),
                     number(loss_of(run.seen)), number(validation_of(run.seen)),
                     run.seen.rows.empty() ? "-" : fmt::format("{:.4g}", run.seen.samples_per_second()),
                     run.verdict.empty() ? "-" : run.verdict, ago(age_seconds(run.seen))});
  if (isatty(STDOUT_FILENO) == 1) fit_lines(lines, static_cast<size_t>(std::max(20, terminal_width())));
  const std::vector<size_t> widths = widths_of(lines);
  for (const Line& line : lines) {
    std::string text;
    for (size_t c = 0; c < line.size(); ++c) {
      const bool right =
          lines[0][c] != "run" && lines[0][c] != "state" && lines[0][c] != "limit" && lines[0][c] != "written";
      const std::string space(widths[c] - columns_of(line[c]), ' ');
      text += (c > 0 ? std::string(kGap, ' ') : "") + (right ? space + line[c] : line[c] + space);
    }
    fmt::print("{}\n", text.substr(0, text.find_last_not_of(' ') + 1));
  }
}

void run_runs(const RunsArguments& arguments, const Globals& globals) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(arguments.folder, ignored))
    throw DataError(
        fmt::format("There is no folder '{}' to look for runs in; `redline train` makes runs/ where it is "
                    "started, or give the folder.",
                    printable(arguments.folder)));
  const measure::HeldFiles held = measure::HeldFiles::now();
  std::vector<ListedRun> runs;
  for (const std::filesystem::path& directory : measure::find_runs(arguments.folder)) {
    auto seen = measure::glance_at_run(directory, held);
    if (!seen) continue;
    const std::string name = directory.lexically_relative(arguments.folder).string();
    std::string verdict = verdict_of(*seen);
    runs.push_back({name == "." ? directory.filename().string() : name, std::move(*seen), std::move(verdict)});
  }
  sort_runs(runs, arguments.sort);
  if (globals.json) {
    nlohmann::json out = {{"schema_version", 1}, {"runs", nlohmann::json::array()}};
    for (const ListedRun& run : runs) out["runs"].push_back(run_json(run));
    fmt::print("{}\n", json_text(out, 1));
  } else if (runs.empty()) {
    fmt::print("There are no runs in '{}'.\n", printable(arguments.folder));
  } else {
    print_runs(runs);
  }
}

}  // namespace

void add_runs_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<RunsArguments>();
  CLI::App* command =
      program.add_subcommand("runs", "List the runs in a folder: state, progress, loss, speed, what limits them");
  command->add_option("folder", arguments->folder, "Where to look, three folders deep");
  command->add_option("--sort", arguments->sort, "time (newest first), name, loss, speed or steps")
      ->check(CLI::IsMember({"time", "name", "loss", "speed", "steps"}));
  command->callback([arguments, &globals] { run_runs(*arguments, globals); });
}

}  // namespace redline::app
