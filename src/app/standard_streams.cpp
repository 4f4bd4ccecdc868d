// stdout becomes a stream of our own (glibc lets us assign it), because fmt::print throws when a write fails, wherever
// a command happens to print, and fputs only sets a flag.
#include "app/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ext/stdio_sync_filebuf.h>
#include <iostream>

#include "core/error.h"
#include "core/log.h"

namespace redline::app {
namespace {

int first_error = 0;  // errno of the first write to stdout that failed

// Claims success whatever happens: who asks at the end learns the truth.
ssize_t write_stdout(void* /*cookie*/, const char* bytes, size_t size) {
  size_t done = 0;
  while (done < size && first_error == 0) {
    const ssize_t put = ::write(STDOUT_FILENO, bytes + done, size - done);
    if (put >= 0) {
      done += static_cast<size_t>(put);
    } else if (errno == EAGAIN) {
      pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
      ::poll(&ready, 1, -1);
    } else if (errno != EINTR) {
      first_error = errno;
    }
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

void prepare_streams() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)!::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  FILE* const ours = ::fopencookie(nullptr, "w", {nullptr, &write_stdout, nullptr, nullptr});
  if (ours == nullptr) return;
  if (::isatty(STDOUT_FILENO) != 0) std::setvbuf(ours, nullptr, _IOLBF, BUFSIZ);
  stdout = ours;
  // Help texts come through it. Never destroyed: cout outlives main.
  std::cout.rdbuf(new __gnu_cxx::stdio_sync_filebuf<char>(ours));
}

int finish_output(int code) {
  std::fflush(stdout);
  if (first_error == 0 || first_error == EPIPE || code != 0) return code;
  log_error(std::string("The answer could not be written to the standard output: ") + std::strerror(first_error) +
            ". Free space there, or send it elsewhere.");
  return static_cast<int>(ExitCode::Disk);
}

}  // namespace redline::app
