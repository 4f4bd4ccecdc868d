// The sentences of this room's errors, built in one place so that each says what, where and what to do.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"
#include "config/node.h"

namespace redline::config {

// Throws ConfigError("PLACE: SENTENCE"), everything made safe for a terminal.
[[noreturn]] void fail_at(const Origin& where, const std::string& sentence);

// A value as it may appear in a message: short, in quotes when it is text.
std::string shown(const Node& value);
std::string shown(std::string_view text);

// "an integer from 1 to 64, or auto", "one of a, b, c", "a number above 0 in seconds (also as 90s or 1h30m)".
std::string expected_text(const Row& row);

// "; did you mean X?" or, without a likely word, "; it has A, B and C" (when few) or the advice to run `redline
// options`.
std::string nearest_text(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace redline::config
