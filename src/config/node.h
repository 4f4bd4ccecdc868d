// The tree between a YAML file and typed structs: scalars, lists and maps, each with where it came from.
// Values stay text until a field asks for a type, so "1e-3", "0.001" and 1e-3 mean the same.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace redline::config {

enum class OriginKind { Default, File, Preset, Flag, Resolved, Tuned };

struct Origin {
  OriginKind kind = OriginKind::Default;
  std::string source;  // file path, preset name, or the flag as typed
  int line = 0, column = 0;
  std::string alias;  // what was written, when it was written under another name: "runner.max_iters: 100"
  int key_line = 0, key_column = 0;  // of the key in front of the value; 0 when there is none
  // "recipes/x.yaml:14:7", "flag --trainer.precision", "default", ...
  std::string text() const;
  Origin key() const;  // the same with the key's place
};

struct Alias;

// True for text that YAML would read as something else than a string when it stands without quotes: 8, 1e-3, yes, null,
// ???.
bool reads_as_non_string(std::string_view text);

class Node {
 public:
  enum class Kind { Null, Scalar, List, Map };
  using Entry = std::pair<std::string, Node>;

  Node() = default;
  static Node scalar(std::string text, bool quoted = false);
  static Node list(std::vector<Node> items = {});
  static Node map(std::vector<Entry> entries = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::Null; }
  bool is_scalar() const { return kind_ == Kind::Scalar; }
  bool is_list() const { return kind_ == Kind::List; }
  bool is_map() const { return kind_ == Kind::Map; }
  bool is_missing_marker() const { return is_scalar() && !quoted_ && text_ == "???"; }  // NeMo's "must be given"

  const std::string& text() const { return text_; }
  bool quoted() const { return quoted_; }
  std::optional<bool> as_bool() const;  // true/false/yes/no/on/off, unquoted
  std::optional<int64_t> as_int() const;
  std::optional<double> as_double() const;  // also inf, nan

  const std::vector<Node>& items() const { return items_; }
  std::vector<Node>& items() { return items_; }
  const std::vector<Entry>& entries() const { return entries_; }
  std::vector<Entry>& entries() { return entries_; }

  const Node* find(std::string_view key) const;          // direct child
  const Node* find_path(std::string_view dotted) const;  // "trainer.precision"; list indices as numbers
  Node* find_path(std::string_view dotted);
  Node* find(std::string_view key);
  Node& set_path(std::string_view dotted, Node value);  // creates maps on the way; throws ConfigError through a scalar
  bool remove_path(std::string_view dotted);

  // Same kind, text and children, in any order of keys. Origins do not count, nor quotes around text that is no number,
  // boolean, null or marker anyway.
  bool operator==(const Node& other) const;

  // Number of nodes in this tree, itself included.
  size_t count() const;

  Origin origin;
  const Alias* unconverted =
      nullptr;  // only inside read_request: an alias whose conversion waits for ${} to be replaced

 private:
  Kind kind_ = Kind::Null;
  std::string text_;
  bool quoted_ = false;
  std::vector<Node> items_;
  std::vector<Entry> entries_;
};

}  // namespace redline::config
