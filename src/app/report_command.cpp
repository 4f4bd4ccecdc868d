// redline report RUN...: records as text, JSON or one self-contained HTML page; redline compare A B: the same two runs
// as a gate.

#include <fmt/format.h>

#include "app/run_names.h"
#include "app/run_page.h"
#include "core/error.h"
#include "core/strings.h"
#include "doctor/compare_runs.h"

namespace redline::app {

void add_report_command(CLI::App& program, const Globals& globals);
void add_compare_command(CLI::App& program, const Globals& globals);

namespace {

double parse_share(const std::string& text) {
  const bool percent = !text.empty() && text.back() == '%';
  const auto value = parse_double(percent ? text.substr(0, text.size() - 1) : text);
  const double share = value.value_or(-1) * (percent ? 0.01 : 1.0);
  if (!(share >= 0 && share < 1)) throw ConfigError("--fail-on takes a share such as 3% or 0.03, not '" + text + "'.");
  return share;
}

constexpr double kGateDefault = 0.03;

struct ReportArguments {
  std::vector<std::string> runs;
  std::string html, fail_on = "3%";
};

void run_compare(const ReportArguments& arguments, const Globals& globals) {
  report::Page page;
  for (const std::string& run : arguments.runs) page.runs.push_back(read_part(find_run(run).string()));
  page.comparison = doctor::compare_runs(page.runs[0].record, page.runs[1].record, parse_share(arguments.fail_on));
  print_page(page, globals, arguments.html);
  if (page.comparison->result != doctor::GateResult::NoRegression)
    throw ExitWith{static_cast<int>(page.comparison->result)};
}

// Two runs that can be compared: how much faster, and how sure. Others have no such sentence.
std::string speed_sentence(const report::Page& page) {
  if (page.runs.size() != 2) return "";
  try {
    const doctor::RunComparison found = doctor::compare_runs(page.runs[0].record, page.runs[1].record, kGateDefault);
    return fmt::format("From {} to {}: {:.2f} -> {:.2f} samples/s, {:.2f} times the speed ({:.2f} to {:.2f}).",
                       page.runs[0].name, page.runs[1].name, found.before.samples_per_second,
                       found.after.samples_per_second, found.speed.ratio, found.speed.interval.low,
                       found.speed.interval.high);
  } catch (const DataError&) {
    return "";
  }
}

}  // namespace

void add_report_command(CLI::App& program, const Globals& globals) {
  auto* command = program.add_subcommand("report", "Show what runs did: text, --json, or one HTML file");
  auto arguments = std::make_shared<ReportArguments>();
  command
      ->add_option("runs", arguments->runs,
                   "Run directories, or names of runs in runs/; with several, the first is 'before'")
      ->required();
  command->add_option("--html", arguments->html, "Write a self-contained HTML page to this file");
  command->callback([arguments, &globals] {
    report::Page page;
    for (const std::string& run : arguments->runs) page.runs.push_back(read_part(find_run(run).string()));
    page.summary = speed_sentence(page);
    print_page(page, globals, arguments->html);
  });
}

void add_compare_command(CLI::App& program, const Globals& globals) {
  auto* command =
      program.add_subcommand("compare",
                             "Compare two runs as a gate: exit 0 no regression, 1 regression, 2 too noisy to say, 3 "
                             "the runs cannot be read or compared");
  auto arguments = std::make_shared<ReportArguments>();
  command->add_option("runs", arguments->runs, "The run before and the run after, as for report")
      ->required()
      ->expected(2);
  command->add_option("--fail-on", arguments->fail_on, "Loss of speed that counts as a regression, e.g. 3%");
  command->add_option("--html", arguments->html, "Write a self-contained HTML page to this file");
  command->callback([arguments, &globals] { run_compare(*arguments, globals); });
}

}  // namespace redline::app
