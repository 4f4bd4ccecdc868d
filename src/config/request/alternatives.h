// Options of which a job gives one: manifest_filepath, path or synth. What a later layer (file, preset, command line)
// names takes the place of what an earlier one named, so that a recipe with generated data trains on the user's own
// with one word. Two in the same layer are a mistake, and the message says how to unset one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/node.h"
#include "config/schema_index.h"

namespace redline::config {

class Alternatives {
 public:
  explicit Alternatives(const SchemaIndex& index);

  void begin_layer() { ++layer_; }
  // Before `layer` (under the tables' names) is merged into `tree`.
  void replace(Node& tree, const Node& layer);
  // Once all layers are merged. Throws ConfigError.
  void check(const Node& tree) const;

 private:
  struct Choice {
    std::vector<std::string> paths;
    std::map<std::string, int> named_in;  // path -> number of the layer that named it last
  };
  std::vector<Choice> choices_;
  int layer_ = 0;
};

}  // namespace redline::config
