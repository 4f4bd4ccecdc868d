#include "train/run/followers.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "config/yaml_writer.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/convert.h"

namespace redline::train {

namespace {

constexpr double kWaitSeconds = 60;  // for a hook or logger at the end of a run

std::string json_of(const std::map<std::string, double>& metrics) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : metrics) json[name] = value;
  return json.dump();
}

// The last lines that a child wrote, for a warning.
std::string follower_words(const std::filesystem::path& log) {
  try {
    const std::string text = trim(read_file(log, size_t{1} << 20));
    const size_t line = text.rfind('\n');
    return printable(line == std::string::npos ? text : text.substr(line + 1));
  } catch (const Error&) {
    return "";
  }
}

// {project: x, tags: [a]} -> "project=x", ...: each as --set of the script.
void add_settings(const config::Node& kwargs, const char* option, std::vector<std::string>& arguments) {
  if (kwargs.is_null()) return;
  if (!kwargs.is_map()) throw ConfigError(fmt::format("exp_manager.{} must be a map.", option));
  for (const auto& [key, value] : kwargs.entries())
    if (value.is_scalar()) arguments.insert(arguments.end(), {"--set", key + "=" + value.text()});
}

}  // namespace

std::vector<std::string> command_words(const std::string& text, const char* option) {
  std::vector<std::string> words;
  std::string word;
  char quote = 0;
  bool open = false;  // a word has begun, also an empty one in quotes
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      open = true;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      open = true;
    } else if (c == ' ' || c == '\t' || c == '\n') {
      if (open) words.push_back(std::move(word));
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote != 0) throw ConfigError(fmt::format("exp_manager.{}: a quote does not end: {}", option, printable(text)));
  if (open) words.push_back(std::move(word));
  if (words.empty()) throw ConfigError(fmt::format("exp_manager.{} names no command.", option));
  return words;
}

Followers::Followers(const ExpManagerConfig& config, const std::filesystem::path& run, const std::string& run_name)
    : run_(std::filesystem::absolute(run)) {
  if (config.on_validation) hooks_["validation"] = command_words(*config.on_validation, "on_validation");
  if (config.on_checkpoint) hooks_["checkpoint"] = command_words(*config.on_checkpoint, "on_checkpoint");
  if (config.on_end) hooks_["end"] = command_words(*config.on_end, "on_end");
  for (const auto& [wanted, kind, kwargs, option] :
       {std::tuple{config.create_mlflow_logger, "mlflow", &config.mlflow_logger_kwargs, "mlflow_logger_kwargs"},
        std::tuple{config.create_wandb_logger, "wandb", &config.wandb_logger_kwargs, "wandb_logger_kwargs"}}) {
    if (!wanted) continue;
    std::vector<std::string> arguments = {kind, run_.string(), "--name", run_name};
    add_settings(*kwargs, option, arguments);
    start_logger(kind, arguments);
  }
}

Followers::~Followers() = default;

void Followers::start_logger(const std::string& name, const std::vector<std::string>& arguments) {
  try {
    ChildOptions options;
    options.arguments = {python_program(), "-B", python_script("loggers.py").string()};
    options.arguments.insert(options.arguments.end(), arguments.begin(), arguments.end());
    options.output = run_ / (name + ".log");
    loggers_.push_back({"The " + name + " logger", std::make_unique<ChildProcess>(options)});
  } catch (const Error& error) {
    log_warning(fmt::format("The {} logger cannot be started, and the run goes on without it: {}", name, error.what()));
  }
}

void Followers::note_end(const Running& child, const ChildResult& result) {
  if (result.exit_code == 0) return;
  const std::string how = result.exit_code > 0 ? fmt::format("ended with exit code {}", result.exit_code)
                                               : fmt::format("was ended by signal {}", result.signal);
  if (!noted_.insert(child.name + how).second) return;  // once for each way to fail
  const bool logger = child.name.ends_with(" logger");
  const std::string words =
      follower_words(run_ / (logger ? split(child.name, ' ')[1] + ".log" : std::string("hooks.log")));
  log_warning(fmt::format("{} {}; the run is not touched by it.{}", child.name, how,
                          words.empty() ? "" : " It said: " + words));
}

void Followers::start_hook(const char* kind, int64_t step,
                           const std::vector<std::pair<std::string, std::string>>& more) {
  const auto hook = hooks_.find(kind);
  if (hook == hooks_.end()) return;
  const std::lock_guard lock(mutex_);
  if (const auto before = running_hooks_.find(kind); before != running_hooks_.end()) {
    const auto result = before->second.process->wait(0);
    if (!result) {
      if (noted_.insert(std::string("busy ") + kind).second)
        log_warning(fmt::format("exp_manager.on_{} of step {} is left out: the one before it still runs.", kind, step));
      return;
    }
    note_end(before->second, *result);
    running_hooks_.erase(before);
  }
  ChildOptions options;
  options.arguments = hook->second;
  options.environment = {
      {"REDLINE_HOOK", kind}, {"REDLINE_RUN_DIR", run_.string()}, {"REDLINE_STEP", std::to_string(step)}};
  options.environment.insert(options.environment.end(), more.begin(), more.end());
  options.output = run_ / "hooks.log";
  try {
    running_hooks_[kind] = {fmt::format("The command of exp_manager.on_{}", kind),
                            std::make_unique<ChildProcess>(options)};
  } catch (const Error& error) {
    running_hooks_.erase(kind);
    if (noted_.insert(std::string("start ") + kind).second)
      log_warning(fmt::format("exp_manager.on_{} cannot be started, and the run goes on: {}", kind, error.what()));
  }
}

void Followers::validated(int64_t step, const std::map<std::string, double>& metrics) {
  start_hook("validation", step, {{"REDLINE_METRICS", json_of(metrics)}});
}

void Followers::saved(int64_t step) { start_hook("checkpoint", step, {}); }

void Followers::wait_for(Running& child, double seconds) {
  const auto result = child.process->wait(seconds);
  if (result) return note_end(child, *result);
  log_warning(fmt::format("{} did not end within {} and is stopped.", child.name, format_seconds(seconds)));
  child.process.reset();
}

void Followers::ended(int64_t step, const std::string& why) {
  start_hook("end", step, {{"REDLINE_WHY", why}});
  const std::lock_guard lock(mutex_);
  for (auto& [kind, child] : running_hooks_) wait_for(child, kWaitSeconds);
  for (Running& child : loggers_) wait_for(child, kWaitSeconds);
  running_hooks_.clear();
  loggers_.clear();
}

}  // namespace redline::train
