// One logger for the process. A line is built whole, then written with one write(2) under a lock, so that lines of
// threads and of other processes on the same terminal do not mix.
#include "core/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>
#include <string>

#include "core/log_prefix.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline {

namespace {

struct Logger {
  std::atomic<LogLevel> level{LogLevel::Info};
  std::atomic<LogFormat> format{LogFormat::Text};
  std::atomic<bool> color{false};
  std::string prefix;  // set before there are threads
  std::mutex mutex;    // guards what follows, and the order of lines
  void (*before)() = nullptr;
  void (*after)() = nullptr;
  std::set<std::string, std::less<>> said_once;
};

Logger& logger() {
  static Logger* const instance = new Logger;  // never destroyed: threads may log during exit
  return *instance;
}

const char* level_name(LogLevel level) {
  switch (level) {
    case LogLevel::Debug:
      return "debug";
    case LogLevel::Info:
      return "info";
    case LogLevel::Warning:
      return "warning";
    case LogLevel::Error:
      return "error";
  }
  return "info";
}

std::string log_line(LogLevel level, std::string_view message, LogFormat format, bool color) {
  if (format == LogFormat::Json) {
    return "{\"time\":\"" + utc_timestamp() + "\",\"level\":\"" + level_name(level) +
           "\",\"message\":" + json_quote(message) + "}\n";
  }
  std::string prefix;
  if (level != LogLevel::Info) {
    const char* paint = level == LogLevel::Error ? "\x1b[1;31m" : level == LogLevel::Warning ? "\x1b[33m" : "\x1b[2m";
    prefix = color ? std::string(paint) + level_name(level) + ":\x1b[0m " : std::string(level_name(level)) + ": ";
  }
  return prefix + printable(message) + "\n";
}

void write_whole(const std::string& line) {
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t wrote = ::write(STDERR_FILENO, line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return;  // nowhere to complain to
    done += static_cast<size_t>(wrote);
  }
}

void log_at(LogLevel level, std::string_view message) {
  Logger& log = logger();
  if (level < log.level.load(std::memory_order_relaxed)) return;
  const std::string line = log.prefix.empty()
                               ? log_line(level, message, log.format, log.color)
                               : log_line(level, log.prefix + std::string(message), log.format, log.color);
  const std::lock_guard lock(log.mutex);
  if (log.before != nullptr) log.before();
  write_whole(line);
  if (log.after != nullptr) log.after();
}

}  // namespace

void set_log_level(LogLevel lowest) { logger().level = lowest; }
void set_log_format(LogFormat format) { logger().format = format; }
void set_log_color(bool on) { logger().color = on; }
void set_log_prefix(std::string_view prefix) { logger().prefix = prefix; }
LogLevel log_level() { return logger().level; }

LogFormat log_format() { return logger().format; }

void set_log_hooks(void (*before)(), void (*after)()) {
  const std::lock_guard lock(logger().mutex);
  logger().before = before;
  logger().after = after;
}

void log_debug(std::string_view message) { log_at(LogLevel::Debug, message); }
void log_info(std::string_view message) { log_at(LogLevel::Info, message); }
void log_warning(std::string_view message) { log_at(LogLevel::Warning, message); }
void log_error(std::string_view message) { log_at(LogLevel::Error, message); }

void log_warning_once(std::string_view message) {
  {
    const std::lock_guard lock(logger().mutex);
    if (!logger().said_once.emplace(message).second) return;
  }
  log_at(LogLevel::Warning, message);
}

}  // namespace redline
