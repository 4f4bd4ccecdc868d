// redline verify CKPT|RUN: are these checkpoints whole, down to the last bit? Exit code 4 when one is not.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/run_names.h"
#include "core/error.h"
#include "core/strings.h"
#include "train/verify.h"

namespace redline::app {

void add_verify_command(CLI::App& program, const Globals& globals);

namespace {

nlohmann::json verify_json(const train::VerifyResult& result) {
  nlohmann::json items = nlohmann::json::array();
  for (const train::VerifiedItem& item : result.items) {
    nlohmann::json damage = nlohmann::json::array();
    for (const train::Damage& one : item.damage) {
      damage.push_back({{"file", one.file.string()},
                        {"block", one.block ? nlohmann::json(*one.block) : nullptr},
                        {"reason", one.reason}});
    }
    items.push_back({{"path", item.path.string()},
                     {"step", item.step ? nlohmann::json(*item.step) : nullptr},
                     {"whole", item.whole()},
                     {"bytes", item.bytes},
                     {"tensors", item.tensors},
                     {"damage", damage},
                     {"unknown_files", item.extra},
                     {"not_finite", item.not_finite}});
  }
  return {{"schema_version", 1},
          {"items", items},
          {"damaged", result.damaged()},
          {"other_directories", result.leftovers},
          {"record_warnings", result.record_warnings},
          {"recorded_steps", result.recorded_steps}};
}

void print_verify(const train::VerifyResult& result) {
  for (const train::VerifiedItem& item : result.items) {
    fmt::print("{}  {}  {} tensors, {}\n", item.whole() ? "whole  " : "DAMAGED", printable(item.path.string()),
               item.tensors, format_bytes(item.bytes));
    for (const train::Damage& damage : item.damage) fmt::print("         {}\n", printable(damage.sentence()));
    for (const std::string& name : item.not_finite) fmt::print("         holds NaN or infinity: {}\n", printable(name));
    for (const std::string& name : item.extra) fmt::print("         not in the manifest: {}\n", printable(name));
  }
  for (const std::string& name : result.leftovers) fmt::print("         also there: {}\n", printable(name));
  for (const std::string& warning : result.record_warnings) fmt::print("         {}\n", printable(warning));
  if (result.recorded_steps >= 0) fmt::print("run record: {} steps\n", result.recorded_steps);
}

}  // namespace

void add_verify_command(CLI::App& program, const Globals& globals) {
  auto path = std::make_shared<std::string>();
  CLI::App* command = program.add_subcommand("verify", "Check checkpoints: sizes, CRC32C, SHA-256, structure, values");
  command->add_option("path", *path, "A run directory or its name in runs/, a step-… directory or a .safetensors file")
      ->required();
  command->callback([path, &globals] {
    const train::VerifyResult result = train::verify_path(find_run_or_weights(*path));
    if (globals.json) {
      fmt::print("{}\n", json_text(verify_json(result), 2));
    } else {
      print_verify(result);
    }
    if (result.damaged() > 0) {
      throw CheckpointError(fmt::format("{} of {} damaged; the newest whole generation is used when you resume.",
                                        result.damaged(), result.items.size()));
    }
  });
}

}  // namespace redline::app
