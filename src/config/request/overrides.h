// The words of a command line as changes to a tree, in every spelling people bring along: key=value and +key=value and
// ~key (Hydra), --key value and --key=value (Lightning), --flag and --no-flag, --options key=value (mmcv).
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/node.h"
#include "config/schema_index.h"

namespace redline::config {

struct Override {
  const IndexEntry* entry = nullptr;  // null: a variable of the file that no table has
  std::string path;                   // as in the index, or the variable's
  std::string rest;                   // an item of a list or a key of a raw subtree below it
  bool remove = false;
  std::optional<Node> value;  // for remove: only when it has this value
  Origin origin;
};

struct OverrideOptions {
  OriginKind kind = OriginKind::Flag;
  std::string source;  // for kinds other than Flag
  std::function<bool(const std::string& path)> is_variable;
};

std::vector<Override> parse_overrides(const std::vector<std::string>& words, const SchemaIndex& index,
                                      const OverrideOptions& options);

// The value of key=VALUE: a list, map or quoted text as in YAML, null, or the text as it is.
Node override_value(const std::string& text, const Origin& origin);

}  // namespace redline::config
