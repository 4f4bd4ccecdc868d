// redline diff A B: where do two runs part? Exit code 0 when they are equal bit for bit, 1 when not.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/diff.h"

namespace redline::app {

void add_diff_command(CLI::App& program, const Globals& globals);

namespace {

nlohmann::json number_json(double value) {  // JSON has no NaN and no infinity
  return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(format_double(value));
}

nlohmann::json diff_json(const train::DiffResult& result) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const train::TensorDifference& one : result.tensors) {
    tensors.push_back({{"part", one.part},
                       {"name", one.name},
                       {"what", one.what},
                       {"elements", one.elements},
                       {"of", one.total},
                       {"largest", number_json(one.largest)}});
  }
  nlohmann::json step = nullptr;
  if (result.first_step) {
    step = {{"step", result.first_step->step},
            {"what", result.first_step->what},
            {"a", number_json(result.first_step->a)},
            {"b", number_json(result.first_step->b)}};
  }
  return {{"schema_version", 1},
          {"equal", result.equal()},
          {"steps_compared", result.steps_compared},
          {"steps_different", result.steps_different},
          {"first_different_step", step},
          {"generation", result.generation ? nlohmann::json(*result.generation) : nullptr},
          {"tensors_compared", result.tensors_compared},
          {"different_tensors", tensors},
          {"state_different", result.state_different},
          {"config", result.config}};
}

void print_diff(const train::DiffResult& result) {
  if (result.first_step) {
    const train::StepDifference& first = *result.first_step;
    if (starts_with(first.what, "only"))
      fmt::print("first different step: {} is {}\n", first.step, first.what);
    else
      fmt::print("first different step: {} ({}): A {} [{:016x}]  B {} [{:016x}]\n", first.step, first.what,
                 format_double(first.a), std::bit_cast<uint64_t>(first.a), format_double(first.b),
                 std::bit_cast<uint64_t>(first.b));
    fmt::print("{} of {} common steps differ\n", result.steps_different, result.steps_compared);
  } else if (result.steps_compared > 0) {
    fmt::print("{} steps: equal bit for bit\n", result.steps_compared);
  }
  if (result.generation) fmt::print("generation of step {}:\n", *result.generation);
  if (result.tensors.empty() && result.tensors_compared > 0)
    fmt::print("{} tensors: equal bit for bit\n", result.tensors_compared);
  constexpr size_t kShown = 20;
  for (size_t i = 0; i < std::min(kShown, result.tensors.size()); ++i) {
    const train::TensorDifference& one = result.tensors[i];
    fmt::print("{} {} {}: {}", i == 0 ? "first different tensor:" : "                       ", one.part,
               printable(one.name), printable(one.what));
    if (one.what == "values")
      fmt::print(", {} of {} elements, largest difference {:.3g}", one.elements, one.total, one.largest);
    fmt::print("\n");
  }
  if (result.tensors.size() > kShown) fmt::print("... and {} more\n", result.tensors.size() - kShown);
  if (result.state_different) fmt::print("state.json differs\n");
  for (const std::string& line : result.config) fmt::print("config  {}\n", printable(line));
}

}  // namespace

void add_diff_command(CLI::App& program, const Globals& globals) {
  auto paths = std::make_shared<std::pair<std::string, std::string>>();
  CLI::App* command = program.add_subcommand("diff", "Find the first step or tensor in which two runs differ");
  command
      ->add_option("a", paths->first, "A run directory or its name in runs/, a step-… directory or a .safetensors file")
      ->required();
  command->add_option("b", paths->second, "The other one")->required();
  command->callback([paths, &globals] {
    const train::DiffResult result =
        train::diff_paths(find_run_or_weights(paths->first), find_run_or_weights(paths->second));
    if (globals.json) {
      fmt::print("{}\n", json_text(diff_json(result), 2));
    } else {
      print_diff(result);
    }
    if (!result.equal()) throw Error(ExitCode::Failure, "The two differ.");
  });
}

}  // namespace redline::app
