// See child_process.h. fork and exec with nothing but async-signal-safe calls in between, since we are a process with
// threads.
#include "train/child/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::train {
namespace {

// What a child says through a pipe when it did not get as far as its program.
struct StartFailure {
  SealStep step = SealStep::Done;  // Done: exec itself
  int32_t code = 0;
};

std::vector<std::string> child_environment(const ChildOptions& options) {
  std::vector<std::string> all;
  const auto add_unless_replaced = [&](const std::string& text) {
    bool replaced = false;
    for (const auto& [name, value] : options.environment) replaced |= starts_with(text, name + "=");
    if (!replaced) all.push_back(text);
  };
  if (options.seal)
    for (const auto& [name, value] : sealed_environment()) add_unless_replaced(name + "=" + value);
  else
    for (char** entry = environ; *entry != nullptr; ++entry) add_unless_replaced(*entry);
  for (const auto& [name, value] : options.environment) all.push_back(name + "=" + value);
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

struct ChildStart {
  char** arguments;
  char** environment;
  const ChildSeal* seal;  // null: not sealed
  int input, output, failure;
  pid_t parent;
};

[[noreturn]] void become_child(const ChildStart& start) {
  StartFailure failed;
  const auto give_up = [&] {
    failed.code = errno;
    (void)!::write(start.failure, &failed, sizeof failed);
    ::_exit(127);
  };
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGCHLD, SIGPIPE, SIGXFSZ})
    ::signal(number, SIG_DFL);  // what we ignore is not the child's choice
  if (start.input >= 0) ::dup2(start.input, STDIN_FILENO);
  if (start.output >= 0) ::dup2(start.output, STDOUT_FILENO), ::dup2(start.output, STDERR_FILENO);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (start.seal != nullptr) failed.step = seal_this_process(*start.seal);
  if (failed.step != SealStep::Done) give_up();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // after a namespace, which may take it back
  if (::getppid() != start.parent) ::_exit(127);
  ::execvpe(start.arguments[0], start.arguments, start.environment);
  give_up();
  ::_exit(127);  // not reached
}

// While SIGCHLD is ignored (also by inheritance) the kernel forgets how children ended.
void keep_exit_codes() {
  struct sigaction now {};
  if (::sigaction(SIGCHLD, nullptr, &now) != 0) return;
  if (now.sa_handler != SIG_IGN && (now.sa_flags & SA_NOCLDWAIT) == 0) return;
  if (now.sa_handler == SIG_IGN) now.sa_handler = SIG_DFL;
  now.sa_flags &= ~SA_NOCLDWAIT;
  ::sigaction(SIGCHLD, &now, nullptr);
}

class OpenDescriptor {
 public:
  explicit OpenDescriptor(int value = -1) : value_(value) {}
  ~OpenDescriptor() { close(); }
  OpenDescriptor(const OpenDescriptor&) = delete;
  OpenDescriptor& operator=(const OpenDescriptor&) = delete;
  int get() const { return value_; }
  void close() {
    if (value_ >= 0) ::close(value_);
    value_ = -1;
  }

 private:
  int value_;
};

std::string start_failure_text(const StartFailure& failed, const std::string& program) {
  const std::string reason = std::strerror(failed.code);
  switch (failed.step) {
    case SealStep::Done:
      break;
    case SealStep::Limits:
      return "The limits of memory and files for '" + printable(program) + "' cannot be set: " + reason +
             ". It was not started.";
    case SealStep::Network:
      return "'" + printable(program) +
             "' is to read a file that is not trusted, so it must run without network, but this machine allows neither "
             "network namespaces nor filters of system calls (" +
             reason + "). It was not started; if you trust the file, --allow-network runs it all the same.";
  }
  return "Cannot start '" + printable(program) + "': " + reason + ".";
}

std::string last_lines(const std::filesystem::path& path) {
  constexpr std::streamoff kMost = 2000;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (path.empty() || !file) return {};
  file.seekg(std::max<std::streamoff>(0, file.tellg() - kMost));
  return printable(trim(std::string(std::istreambuf_iterator<char>(file), {})));
}

}  // namespace

ChildProcess::ChildProcess(const ChildOptions& options) {
  REDLINE_CHECK(!options.arguments.empty(), "a child needs a program");
  std::vector<std::string> arguments = options.arguments, environment = child_environment(options);
  std::vector<char*> argument_list = pointers(arguments), environment_list = pointers(environment);
  const OpenDescriptor output(
      options.output.empty() ? -1 : ::open(options.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!options.output.empty() && output.get() < 0)
    throw DiskError("Cannot open '" + printable(options.output.string()) +
                    "' for the output of a child: " + std::strerror(errno) + ".");
  const OpenDescriptor input(options.seal ? ::open("/dev/null", O_RDONLY | O_CLOEXEC) : -1);
  int ends[2] = {-1, -1};
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw DeviceError("Cannot start '" + printable(options.arguments[0]) + "': " + std::strerror(errno) + ".");
  const OpenDescriptor said(ends[0]);
  OpenDescriptor saying(ends[1]);
  sealed_ = options.seal.has_value();
  begin_ns_ = now_ns();
  keep_exit_codes();
  const ChildStart start = {argument_list.data(),
                            environment_list.data(),
                            options.seal ? &*options.seal : nullptr,
                            input.get(),
                            output.get(),
                            saying.get(),
                            ::getpid()};
  pid_ = ::fork();
  if (pid_ == 0) become_child(start);
  const int code = errno;
  if (pid_ < 0)
    throw DeviceError("Cannot start '" + printable(options.arguments[0]) + "': " + std::strerror(code) + ".");
  saying.close();
  StartFailure failed;
  ssize_t got = 0;
  do {
    got = ::read(said.get(), &failed, sizeof failed);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof failed) {
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    throw DeviceError(start_failure_text(failed, options.arguments[0]));
  }
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
    const int64_t deadline = now_ns() + static_cast<int64_t>(std::min(seconds, 1e9) * 1e9);
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
  const int now_or_later = seconds >= 0 ? WNOHANG : 0;
  siginfo_t info{};
  int found = 0;
  do {
    found = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | now_or_later);
  } while (found < 0 && errno == EINTR);
  if (found == 0 && info.si_pid == 0) return std::nullopt;
  if (found == 0 && sealed_) ::kill(-pid_, SIGKILL);  // what it started ends with it; its number is still ours
  int status = 0;
  pid_t ended = 0;
  do {
    ended = ::waitpid(pid_, &status, 0);
  } while (ended < 0 && errno == EINTR);
  result_ = ChildResult{-1, 0, seconds_between(begin_ns_, now_ns())};
  if (ended != pid_) return result_;  // no status to be had: never taken for a success
  if (WIFEXITED(status)) result_->exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_->signal = WTERMSIG(status);
  return result_;
}

void ChildProcess::send(int signal) {
  if (!result_) ::kill(sealed_ ? -pid_ : pid_, signal);
}

void run_child(const ChildOptions& options, const std::string& what, double timeout_seconds) {
  const std::optional<ChildResult> result = ChildProcess(options).wait(timeout_seconds);
  if (!result) throw DeviceError(what + " did not end within " + format_seconds(timeout_seconds) + " and was stopped.");
  if (result->exit_code == 0) return;
  const std::string how = result->signal != 0 ? "was ended by signal " + std::to_string(result->signal)
                          : result->exit_code < 0
                              ? "ended, but how is not known, because something else took its exit code"
                              : "ended with code " + std::to_string(result->exit_code);
  throw DeviceError(what + " " + how + ". Its last words: " + last_lines(options.output));
}

}  // namespace redline::train
