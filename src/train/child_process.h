// A child process with redirected output that never outlives its parent: for conversions in Python and for chaos
// campaigns.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace redline::train {

struct ChildOptions {
  std::vector<std::string> arguments;  // [0] is the program, looked up in PATH when it has no '/'
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  std::filesystem::path output;  // stdout and stderr are appended here; empty = inherited
  bool no_network = false;       // best effort: a network namespace of its own where the kernel lets us
};

struct ChildResult {
  int exit_code = -1;  // -1 when a signal ended it
  int signal = 0;
  double seconds = 0;
};

class ChildProcess {
 public:
  explicit ChildProcess(const ChildOptions& options);  // throws DeviceError when it cannot be started
  ~ChildProcess();                                     // kills what still runs
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t pid() const { return pid_; }
  // nullopt when it still runs after that many seconds; negative: waits without limit.
  std::optional<ChildResult> wait(double seconds = -1);
  void send(int signal);

 private:
  pid_t pid_ = -1;
  int descriptor_ = -1;  // pidfd
  int64_t begin_ns_ = 0;
  std::optional<ChildResult> result_;
};

// Runs to the end; throws DeviceError with the last lines of `output` when it does not exit with 0.
void run_child(const ChildOptions& options, const std::string& what);

}  // namespace redline::train
