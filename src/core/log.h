// Log lines on stderr, as text or JSON. One process-wide logger; lines are written whole with one write(2).
// Threads: any thread may log. Everything passes through printable(), so a file name cannot steer a terminal.
#pragma once

#include <string_view>

namespace redline {

enum class LogLevel { Debug, Info, Warning, Error };
enum class LogFormat { Text, Json };

void set_log_level(LogLevel lowest);
void set_log_format(LogFormat format);
void set_log_color(bool on);
LogLevel log_level();
LogFormat log_format();

// Called before each line so that a progress line can clear itself and be drawn again afterwards; empty by default.
void set_log_hooks(void (*before)(), void (*after)());

void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

// A warning that is worth saying once per process (same text).
void log_warning_once(std::string_view message);

}  // namespace redline
