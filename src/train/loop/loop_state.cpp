#include "train/loop/loop_state.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/hash.h"
#include "measure/strict_json.h"

namespace redline::train {

namespace {

constexpr int kLoopStateVersion = 1;

using Json = measure::StrictJson;

// Doubles that must come back bit by bit: JSON text of a double does (nlohmann prints the shortest that reads back
// equal), but not infinities, so those travel as words.
Json number_to_json(double value) {
  if (std::isfinite(value)) return value;
  return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}
double number_from_json(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string word = json.get<std::string>();
  if (word == "inf") return std::numeric_limits<double>::infinity();
  if (word == "-inf") return -std::numeric_limits<double>::infinity();
  return std::numeric_limits<double>::quiet_NaN();
}

Json numbers_to_json(const std::map<std::string, double>& numbers) {
  Json json = Json::object();
  for (const auto& [name, value] : numbers) json[name] = number_to_json(value);
  return json;
}
std::map<std::string, double> numbers_from_json(const Json& json) {
  std::map<std::string, double> numbers;
  for (const auto& [name, value] : json.items()) numbers[name] = number_from_json(value);
  return numbers;
}

Json log_sums_to_json(const LogSums& sums) {
  return {{"weight", number_to_json(sums.weight)},
          {"loss", number_to_json(sums.loss)},
          {"metrics", numbers_to_json(sums.metrics)},
          {"steps", sums.steps},
          {"samples", sums.samples},
          {"items", sums.items},
          {"padded_items", sums.padded_items}};
}
LogSums log_sums_from_json(const Json& json) {
  return {number_from_json(json.at("weight")),
          number_from_json(json.at("loss")),
          numbers_from_json(json.at("metrics")),
          json.at("steps"),
          json.at("samples"),
          json.at("items"),
          json.at("padded_items")};
}

uint64_t hex_to_u64(const std::string& text) { return std::stoull(text, nullptr, 16); }

}  // namespace

std::string LoopState::to_json() const {
  Json json;
  json["version"] = kLoopStateVersion;
  json["step"] = step;
  json["position"] = {{"seed", hex64(seed)},
                      {"epoch", epoch},
                      {"step_in_epoch", step_in_epoch},
                      {"plan_hash", plan_hash ? identity_text(*plan_hash) : ""}};
  json["samples_seen"] = samples_seen;
  json["skipped_steps"] = skipped_steps;
  json["guard_actions"] = guard_actions;
  json["loss_scaler"] = {{"scale", number_to_json(loss_scale)}, {"growth_tracker", growth_tracker}};
  json["precision"] = precision_name;
  json["precision_guard"] = {{"level", precision.level},       {"clean", precision.clean},
                             {"failures", precision.failures}, {"since_return", precision.since_return},
                             {"stays", precision.stays},       {"skipped_in_row", precision.skipped_in_row}};
  json["memory_guard"] = {{"piece_cost", memory_piece_cost}};
  json["early_stopping"] = {{"best", early_best ? number_to_json(*early_best) : Json()}, {"waited", early_waited}};
  json["pending_validation"] = pending_validation;
  json["last_validation"] = numbers_to_json(last_validation);
  if (log_window) json["log_window"] = log_sums_to_json(*log_window);
  if (!compile.empty())
    json["compile"] = {{"since", compile.since}, {"shapes", compile.shapes}, {"layouts", compile.layouts}};
  json["numerics"] = {{"intra_op_threads", intra_op_threads}, {"fingerprint", numerics}};
  json["config_hash"] = config_hash;
  json["task"] = Json::parse(task_state);
  json["monitor"] = Json::parse(monitor_state);
  return json.dump(1);
}

LoopState LoopState::from_json(const std::string& text) {
  try {
    const Json json = Json::parse(text);
    if (json.at("version").get<int>() != kLoopStateVersion)
      throw CheckpointError(fmt::format("The checkpoint's loop state has version {}; this redline reads version {}.",
                                        json.at("version").get<int>(), kLoopStateVersion));
    LoopState state;
    state.step = json.at("step");
    const Json& position = json.at("position");
    state.seed = hex_to_u64(position.at("seed"));
    state.epoch = position.at("epoch");
    state.step_in_epoch = position.at("step_in_epoch");
    state.plan_hash = identity_of_text(position.at("plan_hash").get<std::string>());
    state.samples_seen = json.at("samples_seen");
    state.skipped_steps = json.at("skipped_steps");
    state.guard_actions = json.at("guard_actions");
    state.loss_scale = number_from_json(json.at("loss_scaler").at("scale"));
    state.growth_tracker = json.at("loss_scaler").at("growth_tracker");
    state.precision_name = json.at("precision");
    const Json& guard = json.at("precision_guard");
    state.precision = {guard.at("level"),        guard.at("clean"),          guard.at("failures"),
                       guard.at("since_return"), guard.at("skipped_in_row"), guard.at("stays")};
    state.memory_piece_cost = json.at("memory_guard").at("piece_cost");
    if (!json.at("early_stopping").at("best").is_null())
      state.early_best = number_from_json(json.at("early_stopping").at("best"));
    state.early_waited = json.at("early_stopping").at("waited");
    state.pending_validation = json.at("pending_validation");
    state.last_validation = numbers_from_json(json.at("last_validation"));
    if (json.contains("log_window")) state.log_window = log_sums_from_json(json.at("log_window"));
    if (json.contains("compile")) {
      json.at("compile").at("since").get_to(state.compile.since);
      json.at("compile").at("shapes").get_to(state.compile.shapes);
      json.at("compile").at("layouts").get_to(state.compile.layouts);
    }
    state.intra_op_threads = json.at("numerics").at("intra_op_threads");
    state.numerics = json.at("numerics").at("fingerprint");
    state.config_hash = json.at("config_hash");
    for (const auto& [name, value] : {std::pair{"step", state.step}, std::pair{"epoch", state.epoch},
                                      std::pair{"step_in_epoch", state.step_in_epoch}})
      if (value < 0)
        throw CheckpointError(fmt::format(
            "The checkpoint's state.json has {} {}, which no run writes; use another generation (redline verify "
            "lists them).",
            name, value));
    state.task_state = json.at("task").dump();
    state.monitor_state = json.at("monitor").dump();
    return state;
  } catch (const Json::exception& error) {
    throw CheckpointError(fmt::format("The checkpoint's state.json is not a loop state: {}.", error.what()));
  } catch (const std::logic_error&) {
    throw CheckpointError("The checkpoint's state.json is not a loop state: a hash is not a number.");
  }
}

}  // namespace redline::train
