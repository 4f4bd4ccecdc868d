// redline doctor CONFIG: where the time goes, what limits the job and what a change would gain, from short runs in this
// process. redline doctor RUN: the same from a record, without ceilings.

#include "app/print_selftest.h"
#include "app/run_names.h"
#include "app/run_page.h"
#include "core/error.h"
#include "core/log.h"
#include "core/own_folder.h"
#include "core/strings.h"
#include "device/machine.h"
#include "device/profile.h"
#include "measure/machine_json.h"
#include "models/register.h"
#include "tune/experiments.h"

namespace redline::app {

void add_doctor_command(CLI::App& program, const Globals& globals);

namespace {

struct DoctorArguments {
  ConfigArguments config;
  int64_t steps = 100;
  int blocks = 6;
  int64_t block_steps = 20;
  bool operators = false, selftest = false;
  std::string html;
};

// In memory where the machine has such a place: the stopwatch's test asks about injected delays, not about this disk's
// moods.
OwnFolder selftest_folder() {
  try {
    return OwnFolder::temporary("selftest", "/dev/shm");
  } catch (const DiskError&) {  // no such place, or it is full
    return OwnFolder::temporary("selftest");
  }
}

report::Page diagnose_record(const std::string& directory) {
  report::RunPart part = read_part(directory);
  if (part.record.steps.empty())
    throw DataError("'" + directory +
                    "' has no finished steps: there is nothing to diagnose. Let it run for at least 20.");
  part.card.reset();  // `redline report` shows it
  return {"", {std::move(part)}, {}};
}

report::Page diagnose_job(const DoctorArguments& arguments, const config::RequestSource& source) {
  constexpr double kCeilingSeconds = 40;
  task::Registry registry;
  models::register_all(registry);
  MachineFacts machine = device::read_machine_facts();
  log_info("Reading or measuring what this machine can do ...");
  device::read_or_measure_rates(machine);
  tune::Experiments runs(registry, source, machine);
  report::RunPart part;
  part.name = source.file ? source.file->string() : "job";
  tune::Look look = runs.look(arguments.steps);
  part.diagnosis = runs.diagnose(look, runs.ceilings(look, arguments.blocks, kCeilingSeconds));
  part.record.steps = std::move(look.rows);
  part.record.machine_json = measure::machine_to_json(machine);
  part.record.config_yaml = runs.config_yaml();
  part.seen = look.seen;
  if (arguments.operators) part.operators = runs.operators();
  return {"", {std::move(part)}, {}};
}

// A recipe, or a run by its folder or name; said before the machine is measured.
std::filesystem::path recipe_or_run(const std::filesystem::path& word) {
  if (std::filesystem::is_regular_file(word)) return word;
  if (word.extension() == ".yaml" || word.extension() == ".yml")
    throw ConfigError("There is no file '" + printable(word.string()) + "'; check the path.");
  return find_run(word.string());
}

void run_doctor(const DoctorArguments& arguments, const CLI::App& command, const Globals& globals) {
  config::RequestSource source = arguments.config.source(command);
  if (!source.file) throw ConfigError("doctor needs a recipe or a run directory.");
  source.file = recipe_or_run(*source.file);
  if (arguments.selftest) {
    task::Registry registry;
    models::register_all(registry);
    const MachineFacts machine = device::read_machine_facts();
    const OwnFolder scratch = selftest_folder();
    tune::Experiments runs(registry, tune::selftest_source(registry, source, machine), machine, scratch.path());
    print_selftest(runs.selftest(arguments.block_steps), globals);
    return;
  }
  const report::Page page = std::filesystem::is_directory(*source.file) ? diagnose_record(source.file->string())
                                                                        : diagnose_job(arguments, source);
  print_page(page, globals, arguments.html);
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
  command->add_flag("--selftest", arguments->selftest,
                    "Test the stopwatch: inject known delays and print how often the part that grew is named");
  command->add_option("--block-steps", arguments->block_steps, "Steps of one block of that test")
      ->check(CLI::Range(8, 60));
  command->add_option("--html", arguments->html, "Write the page to this file");
  command->callback([arguments, command, &globals] { run_doctor(*arguments, *command, globals); });
}

}  // namespace redline::app
