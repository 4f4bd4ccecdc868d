// CONFIG [overrides]: one spelling for every command that takes a job.
#include <algorithm>

#include "app/command.h"

namespace redline::app {

namespace {

// The recipe is picked out of the free words (see take_recipe), so CLI11 cannot print it as a positional by itself.
class RecipeUsage : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* /*command*/, std::string name) const override {
    return "Usage: " + name + " [OPTIONS] CONFIG [key=value | --key value | +key=value | ~key]...\n";
  }
};

bool is_yaml(const std::string& word) {
  const std::filesystem::path path = word;
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

// The recipe is the first word, or the first one named *.yaml when flags with values stand before it: a positional of
// CLI11 would take the 4 of `--batch_size 4 recipe.yaml`.
std::string take_recipe(std::vector<std::string>& words) {
  if (words.empty()) return {};
  auto recipe = words.begin();
  if (recipe->starts_with('-')) recipe = std::find_if(words.begin(), words.end(), is_yaml);
  if (recipe == words.end() || (recipe->find('=') != std::string::npos && !is_yaml(*recipe))) return {};
  std::string file = *recipe;
  words.erase(recipe);
  return file;
}

}  // namespace

void add_config_arguments(CLI::App& command, ConfigArguments& arguments) {
  command.add_option("--config-path", arguments.config_path, "Folder of the recipe, as in Hydra");
  command.add_option("--config-name", arguments.config_name,
                     "Name of the recipe in --config-path, with or without .yaml");
  command.add_option("--preset", arguments.preset, "A preset of the recipe (its `presets:`)");
  command.add_option("--options,--cfg-options", arguments.options, "More overrides as key=value, as in mmcv");
  command.formatter(std::make_shared<RecipeUsage>());
  command.allow_extras();
}

config::RequestSource ConfigArguments::source(const CLI::App& command) const {
  config::RequestSource source;
  std::vector<std::string> words = command.remaining();
  if (config_name.empty()) {
    if (const std::string recipe = take_recipe(words); !recipe.empty()) source.file = recipe;
  } else {
    std::filesystem::path name = config_name;
    if (!is_yaml(name)) name += ".yaml";
    source.file = std::filesystem::path(config_path) / name;
  }
  if (!preset.empty()) source.preset = preset;
  source.overrides = std::move(words);
  source.overrides.insert(source.overrides.end(), options.begin(), options.end());
  return source;
}

}  // namespace redline::app
