// redline doctor CONFIG: where the time goes, what limits the job and what a change would gain, from short runs in this
// process. redline doctor RUN: the same from a record, without ceilings.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/doctor_runs.h"
#include "app/terminal.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "device/machine.h"
#include "device/rates.h"
#include "measure/machine_json.h"
#include "models/register.h"
#include "report/page.h"
#include "train/run/training_run.h"

namespace redline::app {

void add_doctor_command(CLI::App& program, const Globals& globals);

namespace {

struct DoctorArguments {
  ConfigArguments config;
  int64_t steps = 100;
  int blocks = 4;
  bool operators = false, selftest = false;
  std::string html;
};

report::Page diagnose_record(const std::string& directory) {
  report::RunPart part;
  part.name = directory;
  part.record = measure::read_run(directory);
  if (part.record.steps.empty())
    throw DataError("'" + directory +
                    "' has no finished steps: there is nothing to diagnose. Let it run for at least 20.");
  part.seen = doctor::observe(part.record.steps);
  MachineFacts machine;
  if (!part.record.machine_json.empty())
    machine = measure::machine_from_json(part.record.machine_json, directory + "/machine.json");
  part.diagnosis = doctor::diagnose(settings_of_record(part.record), part.seen, {}, machine);
  return {"", {std::move(part)}, {}};
}

report::Page diagnose_job(const DoctorArguments& arguments, const config::RequestSource& source) {
  task::Registry registry;
  models::register_all(registry);
  MachineFacts machine = device::read_machine_facts();
  log_info("Measuring what this machine can do ...");
  device::measure_rates(machine, {});
  DoctorRuns runs(registry, source, machine);
  report::RunPart part;
  part.name = source.file ? source.file->string() : "job";
  part.record.steps = runs.observe(arguments.steps);
  part.record.machine_json = measure::machine_to_json(machine);
  part.record.config_yaml = runs.config_yaml();
  part.seen = doctor::observe(part.record.steps);
  const auto ceilings = runs.ceilings(part.seen, arguments.blocks);
  part.diagnosis = doctor::diagnose(runs.settings(), part.seen, ceilings, machine);
  if (arguments.operators) runs.print_operators(machine);
  return {"", {std::move(part)}, {}};
}

void print_selftest(const doctor::SelftestResult& result, const Globals& globals) {
  if (globals.json) {
    nlohmann::json matrix = result.matrix;
    fmt::print("{}\n", nlohmann::json{{"schema_version", 1},
                                      {"accuracy", result.accuracy},
                                      {"injections", result.injections},
                                      {"controls", result.controls},
                                      {"false_alarm_rate", result.false_alarm_rate},
                                      {"median_gain_error", result.median_gain_error},
                                      {"matrix", matrix}}
                           .dump(1));
    return;
  }
  fmt::print(
      "{} of {} faults named right ({:.1f} %), {} false alarms in {} controls, median error of the predicted gain "
      "{:.1f} percentage points\n\n",
      result.right, result.injections, 100 * result.accuracy, result.false_alarms, result.controls,
      100 * result.median_gain_error);
  for (const auto& [injected, said] : result.matrix) {
    fmt::print("  {:<14}", injected);
    for (const auto& [name, count] : said) fmt::print(" {} x{}", name, count);
    fmt::print("\n");
  }
}

void run_doctor(const DoctorArguments& arguments, const CLI::App& command, const Globals& globals) {
  const config::RequestSource source = arguments.config.source(command);
  if (!source.file) throw ConfigError("doctor needs a recipe or a run directory.");
  if (arguments.selftest) {
    task::Registry registry;
    models::register_all(registry);
    DoctorRuns runs(registry, selftest_source(source), device::read_machine_facts());
    print_selftest(runs.selftest(arguments.steps), globals);
    return;
  }
  const report::Page page = std::filesystem::is_directory(*source.file) ? diagnose_record(source.file->string())
                                                                        : diagnose_job(arguments, source);
  if (!arguments.html.empty()) write_file_atomic(arguments.html, report::render_html(page));
  const std::string text = globals.json ? report::render_json(page) : report::render_text(page, terminal_width());
  std::fputs(text.c_str(), stdout);
}

}  // namespace

void add_doctor_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<DoctorArguments>();
  CLI::App* command =
      program.add_subcommand("doctor", "Say where a job's time goes, what limits it, and what each change would gain");
  add_config_arguments(*command, arguments->config);
  command->add_option("--steps", arguments->steps, "Steps to observe")->check(CLI::Range(1, 1000000));
  command->add_option("--blocks", arguments->blocks, "Interleaved blocks per ceiling; 0 = no ceilings")
      ->check(CLI::Range(0, 100));
  command->add_flag("--operators", arguments->operators, "Also list the operators of one step");
  command->add_flag("--selftest", arguments->selftest, "Inject known faults and print how often the doctor is right");
  command->add_option("--html", arguments->html, "Write the page to this file");
  command->callback([arguments, command, &globals] { run_doctor(*arguments, *command, globals); });
}

}  // namespace redline::app
