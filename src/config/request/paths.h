// Names of files in a job. A relative name in a recipe is of the recipe's folder (of the run's in a run's config), on
// the command line of the current one; it becomes absolute here, so that what a run keeps is found from anywhere. A
// recipe's name that is only found in the current folder is taken from there, as NeMo and Hydra do. Folders that a run
// writes (run_dir, exp_dir) are not names of files in this sense: they are of the current folder.
#pragma once

#include <functional>
#include <string>

#include "config/fields.h"
#include "config/node.h"
#include "config/schema_index.h"

namespace redline::config {

// Each file name in a value, replaced by what `change` makes of it. Lists and maps of any depth; with Names::Paths
// "a,b" is two, unless the comma stands inside braces.
void map_names(Node& value, Names names, const std::function<std::string(const std::string&, const Origin&)>& change);

// Every row that names files, in a merged request whose references are replaced.
void anchor_paths(Node& tree, const SchemaIndex& index);

}  // namespace redline::config
