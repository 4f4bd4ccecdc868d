// The model_config.yaml of a .nemo file, from the resolved config of a run.
#pragma once

#include <string>

#include "config/node.h"

namespace redline::models::speech {

// `resolved` is the tree of a run's config.resolved.yaml. Only what NeMo's constructors take is written: they refuse
// any other word.
std::string nemo_config(const config::Node& resolved);

}  // namespace redline::models::speech
