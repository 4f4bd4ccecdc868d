// Who speaks, where several processes write to one terminal.
#pragma once

#include <string_view>

namespace redline {

// Before every message of this process, e.g. "[rank 1] "; empty by default. Before there are threads.
void set_log_prefix(std::string_view prefix);

}  // namespace redline
