// MachineFacts as JSON: machine.json of a run, and the answer of `redline machine --json`.
#pragma once

#include <string>

#include "core/machine_facts.h"

namespace redline::measure {

inline constexpr int kMachineSchemaVersion = 1;

std::string machine_to_json(const MachineFacts& facts);
// Throws DataError when the text is no machine.json or has another version; `name` is for the message. Unknown keys are
// ignored.
MachineFacts machine_from_json(const std::string& text, const std::string& name);

}  // namespace redline::measure
