// What the guides promise for a switch, to stand beside what was measured.
#pragma once

#include <string>

namespace redline::tune {

// Empty when no guide says anything about it. `field` and values as in the ledger.
std::string guide_claim(const std::string& task, const std::string& field);

}  // namespace redline::tune
