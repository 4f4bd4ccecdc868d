// From the names people use to the names of the tables: aliases are renamed, shorthands spelled out, `_target_`
// checked, unknown keys refused. Done for each layer (file, preset, flag) by itself, so that a later layer wins
// whatever name it uses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/job.h"
#include "config/schema_index.h"

namespace redline::config {

struct CanonicalOptions {
  // Paths that may stay although no table has them, because a ${} reference uses them; they are dropped.
  std::function<bool(const std::string& path)> is_variable;
  // Where accepted keys go: dropped into this list after their values were checked; kept unchecked when null.
  std::vector<IgnoredKey>* ignored = nullptr;
};

Node canonical(const Node& layer, const SchemaIndex& index, const CanonicalOptions& options);

// Maps are merged key by key; everything else replaces what was there.
void merge_into(Node& tree, Node layer);

// Applies the conversion of an alias to its value and notes the alias in the origin.
void convert_alias(Node& node);
void convert_aliases(Node& tree);

}  // namespace redline::config
