// What a guide promises for a switch, to stand beside what was measured. Free of torch.
#pragma once

#include <string>

namespace redline::task {

struct GuideClaim {
  std::string field;     // the switch as a ledger names it, e.g. "batch_size"
  std::string from, to;  // the values the guide speaks of; may be empty
  std::string gain;      // e.g. "+100-200 %"
  std::string text() const { return from.empty() ? gain : gain + " (" + from + " to " + to + ")"; }
};

}  // namespace redline::task
