#include "core/check.h"

#include <string>

#include "core/error.h"

namespace redline {

void check_failed(const char* condition, std::string_view why, const char* file, int line) {
  throw InternalError("This is a mistake in redline, not in your job: " + std::string(why) + " (" + condition +
                      " is false at " + file + ":" + std::to_string(line) +
                      "); please report it with the command you ran.");
}

}  // namespace redline
