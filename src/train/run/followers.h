// What goes along with a run in processes of its own: hook commands (exp_manager.on_validation, ...) and the loggers of
// other tools (python/loggers.py, which reads the run's own record as it grows). Training never waits for them but at
// its end, and their failure is a warning. Threads: any may call.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "train/child/child_process.h"
#include "train/options/exp_manager_options.h"

namespace redline::train {

// Words of a command line as typed, without a shell: blanks part them, quotes hold them together, a backslash takes the
// next letter as it is. Throws ConfigError for a quote that does not end, or no word at all.
std::vector<std::string> command_words(const std::string& text, const char* option);

class Followers {
 public:
  // Starts the loggers; checks the hooks' words. Throws ConfigError; a logger that cannot be started is a warning.
  Followers(const ExpManagerConfig& config, const std::filesystem::path& run, const std::string& run_name);
  ~Followers();  // what still runs is killed

  void validated(int64_t step, const std::map<std::string, double>& metrics);
  void saved(int64_t step);
  // Runs on_end, and waits for it and the loggers for a bounded time. After the record's last word.
  void ended(int64_t step, const std::string& why);

 private:
  struct Running {
    std::string name;
    std::unique_ptr<ChildProcess> process;
  };
  void start_hook(const char* kind, int64_t step, const std::vector<std::pair<std::string, std::string>>& more);
  void start_logger(const std::string& name, const std::vector<std::string>& arguments);
  void note_end(const Running& child, const ChildResult& result);
  void wait_for(Running& child, double seconds);

  std::filesystem::path run_;
  std::map<std::string, std::vector<std::string>> hooks_;  // "validation" -> words
  std::mutex mutex_;
  std::map<std::string, Running> running_hooks_;
  std::vector<Running> loggers_;
  std::set<std::string> noted_;
};

}  // namespace redline::train
