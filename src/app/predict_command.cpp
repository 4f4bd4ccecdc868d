// redline predict RUN DATA --out FILE: what a trained model says about new data.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/evaluate.h"
#include "train/training_run.h"
#include "train/weights.h"

namespace redline::app {

void add_predict_command(CLI::App& program, const Globals& globals);

namespace {

struct PredictArguments {
  std::string run, data, out, output, checkpoint = "last";
};

// The data takes the place of the validation set: same decoding and collation, no shuffling, nothing dropped.
std::vector<std::string> data_overrides(const task::Task& task, const std::string& data) {
  std::vector<std::string> overrides{"model.validation_ds.shuffle=false", "model.validation_ds.drop_last=false"};
  for (const char* key : {"manifest_filepath", "path", "synth"})
    overrides.push_back(
        fmt::format("model.validation_ds.{}={}", key, key == task.kind()->data_key() ? data : std::string("null")));
  return overrides;
}

// Said before the work, not after it.
void check_paths(const PredictArguments& arguments) {
  const std::filesystem::path out = arguments.out;
  train::check_predictions_path(out);
  if (const auto folder = std::filesystem::absolute(out).parent_path(); !std::filesystem::is_directory(folder))
    throw ConfigError(fmt::format("--out is '{}', but there is no folder '{}'.", printable(arguments.out),
                                  printable(folder.string())));
  if (!std::filesystem::exists(arguments.data))
    throw DataError(fmt::format("There is nothing at '{}' to predict on; check the path.", printable(arguments.data)));
}

void run_predict(const PredictArguments& arguments, const CLI::App& command, const Globals& globals) {
  check_paths(arguments);
  task::Registry registry;
  models::register_all(registry);
  const MachineFacts machine = device::read_machine_facts();
  const std::vector<std::string> words = command.remaining();
  const std::filesystem::path run = find_run(arguments.run);
  const auto first = train::read_run_job(registry, run, words, machine);
  std::vector<std::string> overrides = data_overrides(*train::build_within_limit(*first), arguments.data);
  overrides.insert(overrides.end(), words.begin(), words.end());
  const auto job = train::read_run_job(registry, run, overrides, machine);
  train::prepare_process(*job);
  const auto task = job->build_task();
  const train::ChosenWeights weights = train::choose_weights(run, arguments.checkpoint, job->exp_manager());
  train::load_chosen(weights, *task);
  const train::Predictions predictions = train::predict(*job, *task);
  train::write_predictions(predictions, arguments.out, arguments.output);
  nlohmann::json outputs = nlohmann::json::object();
  for (const auto& [name, tensor] : predictions.outputs) outputs[name] = tensor.sizes().vec();
  if (globals.json) {
    fmt::print("{}\n", json_text(nlohmann::json{{"schema_version", 1},
                                                {"checkpoint", weights.path.string()},
                                                {"samples", predictions.sample_ids.size()},
                                                {"out", arguments.out},
                                                {"outputs", outputs}},
                                 1));
    return;
  }
  fmt::print("{} samples -> {}\n", predictions.sample_ids.size(), printable(arguments.out));
  for (const auto& [name, tensor] : predictions.outputs)
    fmt::print("  {:<24} [{}]\n", name, fmt::join(tensor.sizes(), ", "));
}

}  // namespace

void add_predict_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<PredictArguments>();
  CLI::App* command =
      program.add_subcommand("predict", "Write a trained task's outputs (embeddings, logits, ...) for new data");
  command->add_option("run", arguments->run, "The run directory, or its name in runs/; words after DATA are overrides")
      ->required();
  command->add_option("data", arguments->data, "A manifest (audio), or a file or folder (Parquet, images)")->required();
  command->add_option("--out", arguments->out, "A .parquet, .safetensors or .npy file (beside an .npy: .names.txt)")
      ->required();
  command->add_option("--output", arguments->output, "Only this output (embedding, encoded_mean, ...)");
  command->add_option("--checkpoint", arguments->checkpoint,
                      "last, best, a step, or the path of a checkpoint or .safetensors file");
  command->allow_extras();
  command->callback([arguments, command, &globals] { run_predict(*arguments, *command, globals); });
}

}  // namespace redline::app
