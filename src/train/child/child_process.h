// A child process with redirected output that never outlives its parent: for conversions in Python and for chaos
// campaigns.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/child/child_seal.h"

namespace redline::train {

struct ChildOptions {
  std::vector<std::string> arguments;  // [0] is the program, looked up in PATH when it has no '/'
  std::vector<std::pair<std::string, std::string>> environment;  // over ours; over sealed_environment() when sealed
  std::filesystem::path output;   // stdout and stderr are appended here; empty = inherited
  std::optional<ChildSeal> seal;  // for work on files that are not trusted
};

struct ChildResult {
  int exit_code = -1;  // -1 when a signal ended it, or when nobody knows how it ended
  int signal = 0;      // 0 with exit_code -1: its status was taken by somebody else
  double seconds = 0;
};

class ChildProcess {
 public:
  // Throws DeviceError when it cannot be started or sealed. From here on SIGCHLD is no longer ignored: whoever ignores
  // it is told by the kernel that there was no child, and never how it ended.
  explicit ChildProcess(const ChildOptions& options);
  ~ChildProcess();  // kills what still runs
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
  bool sealed_ = false;  // leads a session: signals go to all of it
  std::optional<ChildResult> result_;
};

// Runs to the end; throws DeviceError with the last lines of `output` when it does not exit with 0, or not within
// `timeout_seconds` (negative: no limit).
void run_child(const ChildOptions& options, const std::string& what, double timeout_seconds = -1);

}  // namespace redline::train
