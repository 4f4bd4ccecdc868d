// What --version prints, and the settings every command shares.
#pragma once

#include <string>

#include "app/command.h"

namespace redline::app {
std::string version_text();  // redline, LibTorch, build id
std::string build_id();
void apply_globals(const Globals& globals);  // log level, colour, format
}  // namespace redline::app
