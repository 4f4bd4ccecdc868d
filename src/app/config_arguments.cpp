// CONFIG [overrides]: one spelling for every command that takes a job.
#include "app/command.h"

namespace redline::app {

void add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("config", arguments.config,
                     "A recipe (YAML file); the words after it are overrides: key=value, --key value");
  command.add_option("--config-path", arguments.config_path, "Folder of the recipe, as in Hydra");
  command.add_option("--config-name", arguments.config_name,
                     "Name of the recipe in --config-path, with or without .yaml");
  command.add_option("--preset", arguments.preset, "A preset of the recipe (its `presets:`)");
  command.add_option("--options,--cfg-options", arguments.options, "More overrides as key=value, as in mmcv");
  command.allow_extras();
  command.fallthrough(false);  // what this command does not know is an override, not the program's
}

config::RequestSource ConfigArguments::source(const CLI::App& command) const {
  config::RequestSource source;
  std::vector<std::string> words = command.remaining();
  if (!config.empty() && config_name.empty()) {
    source.file = config;
  } else if (!config_name.empty()) {
    std::filesystem::path name = config_name;
    if (name.extension() != ".yaml" && name.extension() != ".yml") name += ".yaml";
    source.file = std::filesystem::path(config_path) / name;
    if (!config.empty()) words.insert(words.begin(), config);  // with --config-name the first word is an override
  }
  if (!preset.empty()) source.preset = preset;
  source.overrides = std::move(words);
  source.overrides.insert(source.overrides.end(), options.begin(), options.end());
  return source;
}

}  // namespace redline::app
