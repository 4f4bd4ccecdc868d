// redline options: every option and metric, from the tables that declare them.
#include <cstdio>

#include "app/command.h"
#include "app/version.h"
#include "config/describe.h"
#include "core/error.h"
#include "core/strings.h"
#include "measure/metrics.h"
#include "models/register.h"
#include "train/job.h"

namespace redline::app {

void add_options_command(CLI::App& program, const Globals& globals);

namespace {

struct OptionsArguments {
  bool markdown = false, json_schema = false, man = false, metrics = false;
  std::string completion, presets;
};

struct AllKinds {
  std::vector<std::unique_ptr<train::SchemaHolder>> holders;
  std::vector<config::JobKind> kinds;
};

AllKinds all_kinds(const task::Registry& registry) {
  AllKinds all;
  for (const task::TaskEntry& entry : registry.entries()) {
    all.holders.push_back(train::job_schema(entry));
    all.kinds.push_back({entry.name, &all.holders.back()->schema});
  }
  return all;
}

config::CommandText command_text(const CLI::App& command) {
  config::CommandText text;
  text.name = command.get_name();
  text.sentence = command.get_description();
  text.takes_options = command.get_option_no_throw("--preset") != nullptr;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty() && !option->get_positional())
      text.flags.emplace_back(option->get_name(false, true), option->get_description());
  for (const CLI::App* below : command.get_subcommands({})) text.commands.push_back(command_text(*below));
  return text;
}

config::ProgramText program_text(const CLI::App& program) {
  config::ProgramText text;
  text.sentence = program.get_description().substr(text.name.size() + 1);  // a man page begins with the name itself
  text.version = version_text();
  for (const CLI::App* command : program.get_subcommands({})) text.commands.push_back(command_text(*command));
  for (const CLI::Option* option : program.get_options())
    text.flags.emplace_back(option->get_name(), option->get_description());
  text.exit_codes = {{"0", "ok"},
                     {"1", "failure"},
                     {"2", "usage or configuration"},
                     {"3", "data"},
                     {"4", "no usable checkpoint"},
                     {"5", "diverged"},
                     {"6", "out of memory"},
                     {"7", "disk"},
                     {"8", "peer lost"},
                     {"75", "pre-empted: run again to resume"}};
  return text;
}

std::string metrics_text(const task::Registry& registry) {
  std::vector<measure::MetricSection> sections = {{"Every run", measure::standard_metrics().all()}};
  for (const task::TaskEntry& entry : registry.entries()) {
    measure::MetricSection section{entry.name, {}};
    // A task names its metrics once it is built; its default size will do.
    const auto task = entry.make_config()->build(0);
    for (const task::MetricInfo& metric : task->metrics())
      section.metrics.push_back({metric.name, measure::MetricType::Mean, metric.unit, metric.sentence});
    sections.push_back(std::move(section));
  }
  return measure::metrics_markdown(sections);
}

std::string options_text(const OptionsArguments& arguments, const CLI::App& program, const Globals& globals) {
  if (!arguments.presets.empty()) return join(config::preset_names(arguments.presets), "\n") + "\n";
  task::Registry registry;
  models::register_all(registry);
  if (arguments.metrics) return metrics_text(registry);
  const AllKinds all = all_kinds(registry);
  if (arguments.json_schema || globals.json) return config::options_json_schema(all.kinds);
  if (arguments.man) return config::man_page(all.kinds, program_text(program));
  if (arguments.completion == "bash") return config::bash_completion(all.kinds, program_text(program));
  if (arguments.completion == "zsh") return config::zsh_completion(all.kinds, program_text(program));
  if (arguments.completion == "fish") return config::fish_completion(all.kinds, program_text(program));
  return config::options_markdown(all.kinds);
}

}  // namespace

void add_options_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<OptionsArguments>();
  CLI::App* command =
      program.add_subcommand("options", "Print every option: Markdown, JSON Schema, man page or shell completion");
  command->add_flag("--markdown", arguments->markdown, "As docs/options.md (the default)");
  command->add_flag("--json-schema", arguments->json_schema, "As a JSON Schema for editors and validators");
  command->add_flag("--man", arguments->man, "As a man page");
  command->add_flag("--metrics", arguments->metrics, "The metrics instead of the options, as docs/metrics.md");
  command->add_option("--completion", arguments->completion, "As completion for a shell")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_option("--presets", arguments->presets, "The names of a recipe's presets, one a line");
  command->callback(
      [arguments, &program, &globals] { std::fputs(options_text(*arguments, program, globals).c_str(), stdout); });
}

}  // namespace redline::app
