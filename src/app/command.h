// A subcommand: declares its arguments on CLI11 and runs when chosen. Wiring only; the work is done by the rooms.
// Data goes to stdout, log and progress to stderr; --json answers carry "schema_version".
#pragma once

#include <CLI/CLI.hpp>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "config/job.h"

namespace redline::app {

// Options every command shares (declared once in main).
struct Globals {
  bool json = false;
  int verbose = 0;
  bool quiet = false;
  std::string color = "auto";
  std::string log_format = "text";
};

// CONFIG [overrides] as train, doctor, tune, probe and data share them: the recipe or --config-path/--config-name,
// --preset, and everything CLI11 does not know as overrides in the order typed.
struct ConfigArguments {
  std::string config_path, config_name, preset;
  std::vector<std::string> options;  // --options k=v, --cfg-options k=v
  config::RequestSource source(const CLI::App& command) const;
};
void add_config_arguments(CLI::App& command, ConfigArguments& arguments);

// Thrown by a command whose answer is its exit code (compare, verify) after it has said everything; main only returns
// it.
struct ExitWith {
  int code;
};

// Each command's own file defines one of these; commands.cpp lists them.
using AddCommand = void (*)(CLI::App& program, const Globals& globals);
const std::vector<AddCommand>& commands();
// Usage lines and examples, once every command is there.
void add_help(CLI::App& program);
// Runs the command that the words (without the program's name) ask for; returns the exit code of a usage error.
int parse_words(CLI::App& program, std::vector<std::string> words);

}  // namespace redline::app
