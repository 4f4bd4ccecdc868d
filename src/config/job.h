// From files and flags to bound structs, and back to a dump with the origin of every value.
//
// A job is a list of sections: a dotted path and the object that owns it ("trainer", "exp_manager", "model",
// "model.train_ds", "model.optim", ...). A key belongs to the deepest section on its path, so rooms own their options
// without seeing each other.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields.h"
#include "config/node.h"

namespace redline::config {

// What the user gave: file(s) and command line, before any component has seen it.
struct RequestSource {
  std::optional<std::filesystem::path> file;  // or --config-path/--config-name, joined by the command line
  std::optional<std::string> preset;
  std::vector<std::string>
      overrides;  // in the order typed: "a.b=1", "+a=1", "~a", "--a.b=1", "--a.b", "1", "--no-x", "--flag"
};

// The merged tree: `base:` files, then the file, then the preset, then flags; `${a.b}` references replaced (circles are
// errors); `presets` and `base` removed. Limits against hostile files: 1 MiB, 100,000 nodes, depth 64, no anchors,
// aliases or tags. `flags_of` tells which bare flags exist and which of them are boolean (from the schema).
class Schema;
Node read_request(const RequestSource& source, const Schema& schema);
Node read_yaml_file(const std::filesystem::path& path);
Node read_yaml_text(std::string_view text, const std::string& name);

struct Section {
  std::string path;  // dotted; "" is the root
  std::shared_ptr<const Component> component;
  void* object = nullptr;
  bool optional = false;  // present in the file only when wanted (e.g. model.validation_ds)
};

class Schema {
 public:
  // The object must outlive the schema.
  template <class T>
  void section(std::string path, T& object, bool optional = false) {
    sections_.push_back({std::move(path), T::fields().component(), &object, optional});
  }
  void section(std::string path, std::shared_ptr<const Component> component, void* object, bool optional = false) {
    sections_.push_back({std::move(path), std::move(component), object, optional});
  }
  const std::vector<Section>& sections() const { return sections_; }

 private:
  std::vector<Section> sections_;
};

// One value after binding, for dump, hash and docs.
struct ResolvedValue {
  std::string path;
  Node value;
  Origin origin;
  const Row* row = nullptr;
};

class Resolved {
 public:
  const std::vector<ResolvedValue>& values() const { return values_; }
  const ResolvedValue* find(std::string_view path) const;
  // YAML with each value's origin as a comment; reading it back gives the same config.
  std::string dump_yaml(bool with_origins = true) const;
  std::string dump_json() const;
  // Of names and values only, not of origins; fields whose names are in `ignored` are left out (e.g. run directory).
  uint64_t hash(const std::vector<std::string>& ignored_prefixes = {}) const;

  std::vector<ResolvedValue> values_;
};

// Fills every section's object from the request. Unknown keys, wrong types and values out of range throw ConfigError
// with place and "did you mean". Returns the request's values with origins.
Resolved bind(const Node& request, Schema& schema);

// Reads the objects again after components have resolved their `auto`s: changed values get origin Resolved, the others
// keep theirs.
Resolved snapshot(const Schema& schema, const Resolved& bound);

}  // namespace redline::config
