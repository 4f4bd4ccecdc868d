// redline sample RUN --num 8: sequences decoded from the prior, and validation sequences beside their reconstructions.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "core/error.h"
#include "core/strings.h"
#include "device/machine.h"
#include "models/generate.h"
#include "models/register.h"
#include "train/evaluate.h"
#include "train/training_run.h"
#include "train/validation_rows.h"
#include "train/weights.h"

namespace redline::app {

void add_sample_command(CLI::App& program, const Globals& globals);

namespace {

namespace vae = models::sequence_vae;

struct SampleArguments {
  std::string run, checkpoint = "last";
  int64_t num = 8;
  vae::GenerateOptions generate;
};

nlohmann::json sequence_json(const vae::Generated& sequence) {
  return sequence.values.empty() ? nlohmann::json(sequence.tokens) : nlohmann::json(sequence.values);
}

vae::Generated original_sequence(const vae::Options& options, const task::Batch& row) {
  vae::Generated out;
  const int64_t length = row.at("lengths").item<int64_t>();
  if (options.reads_tokens()) {
    const torch::Tensor tokens = row.at("tokens")[0].to(torch::kCPU);
    const int64_t ends = options.num_ends() / 2;
    for (int64_t t = ends; t < length - ends; ++t) out.tokens.push_back(tokens[t].item<int64_t>());
    return out;
  }
  const torch::Tensor values = row.at("values")[0].to(torch::kCPU).contiguous();
  for (int64_t t = 0; t < length; ++t) {
    const float* step = values[t].const_data_ptr<float>();
    out.values.emplace_back(step, step + options.input_dim);
  }
  return out;
}

nlohmann::json make_samples(const SampleArguments& arguments, const CLI::App& command) {
  task::Registry registry;
  models::register_all(registry);
  const std::filesystem::path run = find_run(arguments.run);
  const auto job = train::read_run_job(registry, run, command.remaining(), device::read_machine_facts());
  train::prepare_process(*job);
  const auto task = job->build_task();
  auto* sequences = dynamic_cast<vae::SequenceVaeTask*>(task.get());
  if (sequences == nullptr)
    throw ConfigError(
        fmt::format("The run {} is of task '{}', which generates nothing; `redline sample` needs a run of "
                    "sequence_vae.",
                    arguments.run, job->entry().name));
  const train::ChosenWeights weights = train::choose_weights(run, arguments.checkpoint, job->exp_manager());
  train::load_chosen(weights, *task);
  task->module().eval();
  nlohmann::json answer = {{"schema_version", 1}, {"checkpoint", weights.path.string()}, {"step", weights.step}};
  const torch::Tensor codes = vae::prior_codes(arguments.num, sequences->options().latent_dim, arguments.generate.seed);
  answer["prior"] = nlohmann::json::array();
  for (const vae::Generated& made : vae::decode(*sequences, codes, arguments.generate))
    answer["prior"].push_back(sequence_json(made));
  answer["reconstructions"] = nlohmann::json::array();
  for (const task::Batch& row : train::validation_rows(*job, *task, arguments.num)) {
    vae::GenerateOptions likeliest = arguments.generate;
    likeliest.temperature = 0.0;
    likeliest.max_length = row.at("lengths").item<int64_t>();
    const auto made = vae::decode(*sequences, vae::posterior_means(*sequences, row), likeliest);
    answer["reconstructions"].push_back({{"sample", row.sample_ids.at(0)},
                                         {"original", sequence_json(original_sequence(sequences->options(), row))},
                                         {"reconstruction", sequence_json(made.at(0))}});
  }
  return answer;
}

void run_sample(const SampleArguments& arguments, const CLI::App& command, const Globals& globals) {
  const nlohmann::json answer = make_samples(arguments, command);
  if (globals.json) {
    fmt::print("{}\n", json_text(answer, 1));
    return;
  }
  fmt::print("{} (step {})\nFrom the prior:\n", printable(answer["checkpoint"].get<std::string>()),
             answer["step"].get<int64_t>());
  for (const nlohmann::json& made : answer["prior"]) fmt::print("  {}\n", json_text(made));
  fmt::print("Validation sequences and their reconstructions:\n");
  for (const nlohmann::json& pair : answer["reconstructions"])
    fmt::print("  {:>8}  {}\n       ->  {}\n", pair["sample"].get<int64_t>(), json_text(pair["original"]),
               json_text(pair["reconstruction"]));
}

}  // namespace

void add_sample_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<SampleArguments>();
  CLI::App* command =
      program.add_subcommand("sample", "Generate sequences with a trained VAE and reconstruct validation sequences");
  command->add_option("run", arguments->run, "The run directory, or its name in runs/; words after it are overrides")
      ->required();
  command->add_option("--num", arguments->num, "How many of each")->check(CLI::Range(1, 100000));
  command->add_option("--max-length", arguments->generate.max_length, "Most steps of a generated sequence")
      ->check(CLI::PositiveNumber);
  command->add_option("--temperature", arguments->generate.temperature, "Of the token draws; 0 takes the likeliest")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--sample-seed", arguments->generate.seed, "Seed of codes and draws");
  command->add_option("--checkpoint", arguments->checkpoint,
                      "last, best, a step, or the path of a checkpoint or .safetensors file");
  command->allow_extras();
  command->callback([arguments, command, &globals] { run_sample(*arguments, *command, globals); });
}

}  // namespace redline::app
