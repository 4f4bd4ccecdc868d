// File names with ranges, as NeMo and WebDataset write them: audio_{0..511}.tar, with any of ( [ < _OP_ for { and ) ] >
// _CL_ for }.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace redline::data {

// Shell-style brace expansion: {a,b}, {0..9}, {000..120}, {10..0..5}, several and nested. Text without braces comes
// back as is. Throws ConfigError when it would give more than a million names.
std::vector<std::string> expand_braces(std::string_view pattern);

// The same after NeMo's stand-ins for braces are put back. Only for names that hold a range: "clip (1).wav" keeps its
// parentheses.
std::vector<std::string> expand_names(std::string_view pattern);

}  // namespace redline::data
