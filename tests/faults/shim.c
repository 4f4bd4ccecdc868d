/* A disk and a clock that misbehave, put between a program and libc with LD_PRELOAD: for machines without a device that
   can be told to fail. Counts the calls on paths that contain SHIM_PATH; from call SHIM_FROM on, SHIM_COUNT of them fail
   with SHIM_ERRNO (a number) or, with SHIM_KILL=1, the process is killed there. SHIM_CALLS names the calls (open, read,
   write, fsync, rename, stat). With SHIM_DELAY_US each counted call waits so long first. SHIM_LOG gets one line per
   counted call. SHIM_CLOCK moves the wall clock by so many seconds from the SHIM_CLOCK_FROM-th reading on. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls, clock_readings;

static long number(const char *name, long fallback) {
  const char *text = getenv(name);
  return text != NULL && *text != 0 ? strtol(text, NULL, 10) : fallback;
}

#define REAL(name) \
  static __typeof__(&name) real; \
  if (real == NULL) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

/* 1 when this call must fail; errno is set. */
static int fails(const char *call, const char *path) {
  const char *wanted = getenv("SHIM_PATH"), *kinds = getenv("SHIM_CALLS");
  if (wanted == NULL || path == NULL || strstr(path, wanted) == NULL) return 0;
  if (kinds != NULL && strstr(kinds, call) == NULL) return 0;
  const long at = atomic_fetch_add(&calls, 1);
  const char *log = getenv("SHIM_LOG");
  if (log != NULL) {
    static int (*real_open)(const char *, int, ...);
    static ssize_t (*real_write)(int, const void *, size_t);
    if (real_open == NULL) real_open = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    if (real_write == NULL) real_write = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    char line[PATH_MAX + 64];
    const int length = snprintf(line, sizeof(line), "%ld %s %s\n", at, call, path);
    const int file = real_open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file >= 0) {
      if (real_write(file, line, (size_t)length) < 0) { /* only a log */
      }
      close(file);
    }
  }
  const long delay = number("SHIM_DELAY_US", 0);
  if (delay > 0) {
    const struct timespec wait = {delay / 1000000, delay % 1000000 * 1000};
    nanosleep(&wait, NULL);
  }
  const long from = number("SHIM_FROM", LONG_MAX), count = number("SHIM_COUNT", 1);
  if (at < from || at >= from + count) return 0;
  if (number("SHIM_KILL", 0) != 0) kill(getpid(), SIGKILL);
  errno = (int)number("SHIM_ERRNO", EIO);
  return 1;
}

static const char *path_of(int fd, char *buffer) {
  char link[64];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, buffer, PATH_MAX - 1);
  if (length < 0) return NULL;
  buffer[length] = 0;
  return buffer;
}

int open(const char *path, int flags, ...) {
  REAL(open);
  va_list list;
  va_start(list, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(list, mode_t) : 0;
  va_end(list);
  return fails("open", path) ? -1 : real(path, flags, mode);
}
ssize_t read(int fd, void *data, size_t bytes) {
  REAL(read);
  char path[PATH_MAX];
  return getenv("SHIM_PATH") != NULL && fails("read", path_of(fd, path)) ? -1 : real(fd, data, bytes);
}
ssize_t pread(int fd, void *data, size_t bytes, off_t at) {
  REAL(pread);
  char path[PATH_MAX];
  return fails("read", path_of(fd, path)) ? -1 : real(fd, data, bytes, at);
}
ssize_t write(int fd, const void *data, size_t bytes) {
  REAL(write);
  char path[PATH_MAX];
  return fails("write", path_of(fd, path)) ? -1 : real(fd, data, bytes);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
  REAL(pwrite);
  char path[PATH_MAX];
  return fails("write", path_of(fd, path)) ? -1 : real(fd, data, bytes, at);
}
int fsync(int fd) {
  REAL(fsync);
  char path[PATH_MAX];
  return fails("fsync", path_of(fd, path)) ? -1 : real(fd);
}
int rename(const char *from, const char *to) {
  REAL(rename);
  return fails("rename", to) ? -1 : real(from, to);
}
int clock_gettime(clockid_t id, struct timespec *now) {
  REAL(clock_gettime);
  const int result = real(id, now);
  const long shift = number("SHIM_CLOCK", 0);
  if (id == CLOCK_REALTIME && shift != 0 && atomic_fetch_add(&clock_readings, 1) >= number("SHIM_CLOCK_FROM", 0))
    now->tv_sec += shift;
  return result;
}
