// redline convert [nemo|torch|safetensors] IN OUT: weights from and to the files of other projects, under their names.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "config/job.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "models/register.h"
#include "train/convert.h"

namespace redline::app {

void add_convert_command(CLI::App& program, const Globals& globals);

namespace {

constexpr uint64_t kLeastMemory = uint64_t{512} << 20;

struct ConvertArguments {
  std::vector<std::string> words, renames;
  train::ConvertRequest request;
  std::string config, memory, timeout;
};

// A run knows what a .nemo file must say of its model; elsewhere --config does. Of a run or of one of its checkpoints.
std::string config_of_run(const std::filesystem::path& source) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  for (const std::filesystem::path& folder : {source, source / ".." / ".."}) {
    const std::filesystem::path file = folder / "config.resolved.yaml";
    std::error_code code;
    if (std::filesystem::is_directory(source, code) && std::filesystem::is_regular_file(file, code))
      return models::reference_config(config::read_yaml_text(read_file(file, kMostBytes), file.string()));
  }
  return "";
}

train::ConvertRequest convert_request(const ConvertArguments& arguments) {
  train::ConvertRequest request = arguments.request;
  std::vector<std::string> words = arguments.words;
  if (words.size() == 3) {
    if (words[0] != "nemo" && words[0] != "torch" && words[0] != "safetensors") {
      throw ConfigError("Unknown format '" + printable(words[0]) + "'; known: nemo, torch, safetensors.");
    }
    words.erase(words.begin());  // the files' endings say the same; the word is there for the reader
  }
  if (words.size() != 2)
    throw ConfigError(
        "convert takes IN and OUT, with an optional format in front: redline convert nemo MODEL.nemo OUT.safetensors");
  request.source = find_run_or_weights(words[0]);
  request.target = words[1];
  request.config = arguments.config;
  if (request.config.empty() && request.target.extension() == ".nemo")
    request.config_text = config_of_run(request.source);
  if (!arguments.memory.empty()) {
    const auto bytes = parse_bytes(arguments.memory);
    if (!bytes || *bytes == 0 || *bytes > static_cast<uint64_t>(INT64_MAX))
      throw ConfigError("--memory takes a size such as 8GiB, not '" + printable(arguments.memory) + "'.");
    if (*bytes < kLeastMemory)
      throw ConfigError("--memory is " + printable(arguments.memory) + "; expected " + format_bytes(kLeastMemory) +
                        " or more, because Python and PyTorch alone take a part of it.");
    request.memory_bytes = static_cast<int64_t>(*bytes);
  }
  if (!arguments.timeout.empty()) {
    const auto seconds = parse_seconds(arguments.timeout);
    if (!seconds || !(*seconds > 0))
      throw ConfigError("--timeout takes a time such as 30m, not '" + printable(arguments.timeout) + "'.");
    request.timeout_seconds = *seconds;
  }
  for (const std::string& rename : arguments.renames) {
    const size_t equals = rename.find('=');
    if (equals == std::string::npos)
      throw ConfigError("--rename-prefix wants FROM=TO, found '" + printable(rename) + "'.");
    request.rename_prefixes.emplace_back(rename.substr(0, equals), rename.substr(equals + 1));
  }
  request.known_names = [](const std::vector<std::string>& names) {
    task::Registry registry;
    models::register_all(registry);
    std::map<std::string, std::string> renamed;
    for (const task::TaskEntry& entry : registry.entries())
      if (entry.from_reference_names && renamed.empty()) renamed = entry.from_reference_names(names);
    return renamed;
  };
  request.known_order = models::from_reference_order;
  return request;
}

}  // namespace

void add_convert_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<ConvertArguments>();
  CLI::App* command = program.add_subcommand(
      "convert", "Convert weights: .nemo, torch checkpoints and safetensors, under the reference names");
  command
      ->add_option("words", arguments->words,
                   "[nemo|torch|safetensors] IN OUT; IN may be a run (its directory, or its name in runs/) or a step-… "
                   "directory")
      ->required()
      ->expected(2, 3);
  command->add_option("--key", arguments->request.key,
                      "The dictionary inside a torch file, e.g. model_ema; looked for when not given");
  command->add_option("--rename-prefix", arguments->renames,
                      "FROM=TO, e.g. module.= ; may be repeated, the first that fits is used");
  command->add_option("--dtype", arguments->request.dtype, "Type of floating tensors in OUT: F32, F16, BF16, F64");
  command->add_option("--config", arguments->config,
                      "model_config.yaml to put into a .nemo file; a speech run has its own");
  command->add_option("--memory", arguments->memory,
                      "Most memory for reading or writing a torch file, e.g. 8GiB; default: eight times its size, at "
                      "least 2 GiB");
  command->add_option("--timeout", arguments->timeout,
                      "Longest time for a torch file, e.g. 30m; default: ten minutes and more for large files");
  command->add_flag("--allow-network", arguments->request.allow_network,
                    "Convert torch files also where the machine cannot cut off the converter's network");
  command->add_flag("--ema", arguments->request.ema, "Of a checkpoint: the averaged weights");
  command->callback([arguments, &globals] {
    const train::ConvertRequest request = convert_request(*arguments);
    const train::ConvertReport report = train::convert_weights(request);
    for (const std::string& name : report.skipped) log_warning("not a tensor, left out: " + name);
    for (const std::string& name : report.left_out) log_warning("no place in the model, left out: " + printable(name));
    if (globals.json) {
      const nlohmann::json answer = {{"schema_version", 1},         {"target", request.target.string()},
                                     {"tensors", report.tensors},   {"elements", report.elements},
                                     {"renamed", report.renamed},   {"skipped", report.skipped},
                                     {"left_out", report.left_out}, {"config", report.config_written.string()}};
      fmt::print("{}\n", json_text(answer, 2));
      return;
    }
    fmt::print("{}: {} tensors, {} elements", printable(request.target.string()), report.tensors, report.elements);
    if (report.renamed > 0) fmt::print(", {} renamed", report.renamed);
    fmt::print("\n");
    if (!report.config_written.empty())
      fmt::print("{}: the model's own config\n", printable(report.config_written.string()));
  });
}

}  // namespace redline::app
