// See child_process.h. fork and exec with nothing but async-signal-safe calls in between, since we are a process with
// threads.
#include "train/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/check.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::train {
namespace {

constexpr int kExecFailed = 127;

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool replaced = false;
    for (const auto& [name, value] : options.environment) replaced |= starts_with(text, name + "=");
    if (!replaced) all.emplace_back(text);
  }
  for (const auto& [name, value] : options.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

[[noreturn]] void become_child(char** arguments, char** environment, int output, pid_t parent, bool no_network) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kExecFailed);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (no_network) (void)!::unshare(CLONE_NEWUSER | CLONE_NEWNET);
  if (output >= 0) ::dup2(output, STDOUT_FILENO), ::dup2(output, STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  ::_exit(kExecFailed);
}

std::string last_lines(const std::filesystem::path& path) {
  if (path.empty()) return {};
  const std::string text = trim(read_file(path));
  return printable(text.size() > 2000 ? text.substr(text.size() - 2000) : text);
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  REDLINE_CHECK(!options.arguments.empty(), "a child needs a program");
  std::vector<std::string> arguments = options.arguments, environment = child_environment(options);
  std::vector<char*> argument_list = pointers(arguments), environment_list = pointers(environment);
  int output = -1;
  if (!options.output.empty()) {
    output = ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (output < 0)
      throw DiskError("Cannot open '" + printable(options.output.string()) +
                      "' for the output of a child: " + std::strerror(errno) + ".");
  }
  begin_ns_ = now_ns();
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become_child(argument_list.data(), environment_list.data(), output, parent, options.no_network);
  const int code = errno;
  if (output >= 0) ::close(output);
  if (pid_ < 0)
    throw DeviceError("Cannot start '" + printable(options.arguments[0]) + "': " + std::strerror(code) + ".");
  descriptor_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
}

ChildProcess::~ChildProcess() {
  if (!result_) {
    send(SIGKILL);
    wait();
  }
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::optional<ChildResult> ChildProcess::wait(double seconds) {
  if (result_) return result_;
  if (seconds >= 0) {
    const int64_t deadline = now_ns() + static_cast<int64_t>(seconds * 1e9);
    for (;;) {
      const int64_t left = deadline - now_ns();
      if (left <= 0) break;
      const timespec limit = {left / 1'000'000'000, left % 1'000'000'000};
      pollfd ready = {descriptor_, POLLIN, 0};
      if (descriptor_ < 0) {  // a kernel without pidfd: look again every millisecond
        ::usleep(1000);
        siginfo_t info{};
        if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_)
          break;
      } else {
        const int got = ::ppoll(&ready, 1, &limit, nullptr);
        if (got > 0 || (got < 0 && errno != EINTR)) break;
      }
    }
  }
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status, seconds >= 0 ? WNOHANG : 0);
  } while (ended < 0 && errno == EINTR);
  if (ended == 0) return std::nullopt;
  result_ = ChildResult{WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                        seconds_between(begin_ns_, now_ns())};
  return result_;
}

void ChildProcess::send(int signal) {
  if (!result_) ::kill(pid_, signal);
}

void run_child(const ChildOptions& options, const std::string& what) {
  const ChildResult result = *ChildProcess(options).wait();
  if (result.exit_code == 0) return;
  const std::string how = result.signal != 0                ? "was ended by signal " + std::to_string(result.signal)
                          : result.exit_code == kExecFailed ? "could not be started (" + options.arguments[0] + ")"
                                                            : "ended with code " + std::to_string(result.exit_code);
  throw DeviceError(what + " " + how + ". Its last words: " + last_lines(options.output));
}

}  // namespace redline::train
