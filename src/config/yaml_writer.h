// Node to YAML and JSON text. What is written reads back equal, also by other YAML readers: text that could be taken
// for a number, a boolean, a date or a reference is quoted or escaped.
#pragma once

#include <string>

#include "config/node.h"

namespace redline::config {

// Block style for maps, flow style for lists; with `with_origins` each value's origin follows as a comment.
std::string write_yaml(const Node& map, bool with_origins);

// One value on one line, as in a list.
std::string write_yaml_flow(const Node& value);

// Two blanks per level; infinities, which JSON does not have, become strings.
std::string write_json(const Node& value);

}  // namespace redline::config
