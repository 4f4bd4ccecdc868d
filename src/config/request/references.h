// ${a.b} references as OmegaConf and NeMo's files use them: a whole value or inside a string, absolute or relative
// (${.x} beside the key, ${..x} one map up), nested (${a.${b}}), list items (${a.0} or ${a[0]}); a backslash in front
// keeps the text.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>

#include "config/node.h"

namespace redline::config {

struct ReferenceSources {
  // The same layers under the names they were written with, for names that `tree` does not have; resolved on the way.
  Node* raw = nullptr;
  std::function<std::optional<Node>(const std::string& path)> default_of;  // a value nobody wrote
};

// Replaces every reference in `tree` and applies the conversions of aliases on the way. Circles, unknown names and
// expansions beyond the limits throw ConfigError.
void resolve_references(Node& tree, const ReferenceSources& sources);

// The absolute paths that references in `tree` name; a nested name gives the part in front of it.
std::set<std::string> referenced_paths(const Node& tree);

}  // namespace redline::config
