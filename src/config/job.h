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
  // Switches a tuner chose, as "key=value"; stronger than file and preset, weaker than what is typed.
  std::vector<std::string> tuned;
  std::string tuned_by;  // e.g. the path of the tune card
  std::vector<std::string>
      overrides;  // in the order typed: "a.b=1", "+a=1", "~a", "--a.b=1", "--a.b", "1", "--no-x", "--flag"
};

// The merged tree under the names of the tables: `base:` files, then the file, then the preset, then what was tuned,
// then flags; aliases renamed and converted, `${a.b}` references replaced (circles are errors); `presets` and `base`
// removed. Limits against hostile files: 1 MiB, 100,000 nodes, depth 64, no anchors, aliases or tags. A flag may be a
// path or a bare word (docs/new_option.md); the schema tells which of them are boolean and take no word.
class Schema;
Node read_request(const RequestSource& source, const Schema& schema);
Node read_yaml_file(const std::filesystem::path& path);
Node read_yaml_text(std::string_view text, const std::string& name);

// One value of the request before there is a schema, e.g. which task it asks for. Only whole paths, no aliases.
std::optional<std::string> peek_request(const RequestSource& source, std::string_view path);
// The names under `presets:` of the file and its bases.
std::vector<std::string> preset_names(const std::filesystem::path& file);

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
  Node value;  // in the form of its type: 1e-3 and 0.001 are the same; ??? when it must still be given
  Origin origin;
  const Row* row = nullptr;          // null for an optional group that is absent (value null)
  std::shared_ptr<const Node> held;  // what the object held when `value` is ???: its default
};

// A key that was read and has no effect here, with the reason.
struct IgnoredKey {
  std::string path, reason;
  Origin origin;
};

// How the names of files count in a hash: by their last word, because data may move while a run is stopped (its content
// is checked elsewhere), or by their place seen from the current folder.
enum class FilesBy { Name, Place };

// A config as it is: names, values and origins. Immutable; keeps the tables it was read with alive.
class Resolved {
 public:
  const std::vector<ResolvedValue>& values() const { return values_; }
  const std::vector<IgnoredKey>& ignored() const { return ignored_; }
  const ResolvedValue* find(std::string_view path) const;
  // An optional section or group that the request has.
  bool has_section(std::string_view path) const;
  // The value, for someone who cannot do without it: throws ConfigError when it is ???, null or an empty text.
  const Node& require(std::string_view path) const;
  // Values that are still the word auto; empty once every component has resolved its own.
  std::vector<std::string> still_auto() const;

  // YAML with each value's origin as a comment; reading it back gives the same config.
  std::string dump_yaml(bool with_origins = true) const;
  std::string dump_json() const;
  // Of names and values only, not of origins; rows that a resumed run may change (Row::same_run) and paths that begin
  // with one of `ignored_prefixes` (e.g. "exp_manager") are left out. Files count by `files`.
  uint64_t hash(const std::vector<std::string>& ignored_prefixes = {}, FilesBy files = FilesBy::Name) const;

 private:
  friend class Binder;
  Node tree() const;
  std::vector<ResolvedValue> values_;
  std::vector<IgnoredKey> ignored_;
  std::vector<std::string> present_;  // sections and groups
  std::vector<std::shared_ptr<const Component>> components_;
};

// Fills every section's object from the request. Unknown keys, wrong types and values out of range throw ConfigError
// with place and "did you mean". ??? leaves the default and is recorded (Resolved::require). Returns the values with
// origins.
Resolved bind(const Node& request, Schema& schema);

// Reads the objects again after components have resolved their `auto`s: changed values get origin Resolved, the others
// keep theirs.
Resolved snapshot(const Schema& schema, const Resolved& bound);

}  // namespace redline::config
