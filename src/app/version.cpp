#include "app/version.h"

#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "core/log.h"

namespace redline::app {

std::string build_id() { return REDLINE_BUILD_ID; }

std::string version_text() {
  return std::string("redline ") + REDLINE_VERSION + "\nLibTorch " + TORCH_VERSION + "\nbuild " + build_id();
}

void apply_globals(const Globals& globals) {
  set_log_level(globals.quiet ? LogLevel::Warning : globals.verbose > 0 ? LogLevel::Debug : LogLevel::Info);
  set_log_format(globals.log_format == "json" ? LogFormat::Json : LogFormat::Text);
  const char* term = std::getenv("TERM");
  const bool plain = std::getenv("NO_COLOR") != nullptr || (term != nullptr && std::strcmp(term, "dumb") == 0);
  set_log_color(globals.color == "always" || (globals.color == "auto" && !plain && isatty(STDERR_FILENO) != 0));
}

}  // namespace redline::app
