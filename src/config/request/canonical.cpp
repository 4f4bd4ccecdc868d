#include "config/request/canonical.h"

#include <unordered_map>

#include "config/request/messages.h"
#include "config/yaml_writer.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::config {

namespace {

std::string path_of(const IndexEntry& parent, const std::string& key) {
  return parent.path.empty() ? key : parent.path + "." + key;
}

std::string last_word(const std::string& dotted) { return dotted.substr(dotted.rfind('.') + 1); }

bool stands_for_a_map(const Node& value) {
  return value.is_missing_marker() || (value.is_scalar() && value.text().find("${") != std::string::npos);
}

class Canonicaliser {
 public:
  Canonicaliser(const SchemaIndex& index, const CanonicalOptions& options) : index_(index), options_(options) {}

  Node run(const Node& layer) {
    Node out = Node::map();
    out.origin = layer.origin;
    walk(layer, index_.root(), out);
    for (Renamed& one : renamed_) place_renamed(out, std::move(one));
    return out;
  }

 private:
  struct Renamed {
    std::string path;
    Node value;
  };

  // `out` is the map that mirrors `entry`; values under other names wait in renamed_, because adding them elsewhere
  // would move it.
  void walk(const Node& map, const IndexEntry& entry, Node& out) {
    for (const auto& [key, value] : map.entries()) {
      const IndexEntry* child = entry.child(key);
      if (key == "_target_" && entry.is_map()) {
        check_target(entry, child, value, out);
      } else if (child == nullptr) {
        if (options_.is_variable && options_.is_variable(path_of(entry, key))) continue;
        index_.unknown_key(entry, key, value.origin.key());
      } else {
        place(*child, value, out);
      }
    }
  }

  void place(const IndexEntry& entry, const Node& value, Node& out) {
    const bool nested = value.is_map() && !entry.children.empty();
    const Row* row = entry.target != nullptr ? entry.target->row : entry.row;
    const bool raw = row != nullptr && ends_with(row->type, "node");
    if (row != nullptr && (!nested || raw)) {
      if (entry.target != nullptr) {
        rename(entry, value);
      } else {
        out.entries().emplace_back(entry.word, value);
      }
    } else if (entry.is_map()) {
      place_map(entry, value, out);
    } else if (entry.accepted != nullptr && !nested) {
      accept(entry, value, out);
    } else if (value.is_map()) {  // a word on the way to an alias or a section
      Node inner = Node::map();
      inner.origin = value.origin;
      walk(value, entry, inner);
      if (!inner.entries().empty()) out.entries().emplace_back(entry.word, std::move(inner));
    } else if (stands_for_a_map(value)) {
      out.entries().emplace_back(entry.word, value);
    } else if (!value.is_null()) {
      fail_at(value.origin, entry.path + " must be a map of keys, found " + shown(value) + ".");
    }
  }

  void place_map(const IndexEntry& entry, const Node& value, Node& out) {
    if (value.is_null() || stands_for_a_map(value)) {
      out.entries().emplace_back(entry.word, value);
      return;
    }
    Node inner = Node::map();
    inner.origin = value.origin;
    if (value.is_map()) {
      walk(value, entry, inner);
    } else {
      const std::string shorthand = shorthand_of(entry);
      if (shorthand.empty() || !value.is_scalar()) {
        fail_at(value.origin,
                entry.path + " must be a map of keys, found " + shown(value) +
                    (shorthand.empty() ? "." : "; a single word sets " + entry.path + "." + shorthand + "."));
      }
      inner.entries().emplace_back(shorthand, value);
    }
    out.entries().emplace_back(entry.word, std::move(inner));
  }

  static std::string shorthand_of(const IndexEntry& entry) {
    for (const Component* component : entry.components()) {
      if (!component->shorthand.empty()) return component->shorthand;
    }
    return "";
  }

  void rename(const IndexEntry& entry, Node value) {
    value.origin.alias = entry.path + ": " + (value.is_map() ? "..." : write_yaml_flow(value));
    if (value.origin.alias.size() > 120) value.origin.alias = entry.path;
    value.unconverted = entry.alias;
    renamed_.push_back({entry.target->path, std::move(value)});
  }

  static void place_renamed(Node& out, Renamed one) {
    if (const Node* before = out.find_path(one.path)) {
      if (*before == one.value && before->unconverted == one.value.unconverted) return;
      fail_at(one.value.origin.key(),
              one.path + " is also given at " + before->origin.key().text() + "; remove one of them.");
    }
    out.set_path(one.path, std::move(one.value));
  }

  void accept(const IndexEntry& entry, const Node& value, Node& out) {
    if (options_.ignored == nullptr) {
      out.entries().emplace_back(entry.word, value);
      return;
    }
    const Component::Accepted& rule = *entry.accepted;
    const std::string text = value.is_scalar() ? value.text() : write_yaml_flow(value);
    bool fine = rule.values.empty() || value.is_missing_marker();
    for (const std::string& allowed : rule.values) fine = fine || to_lower(allowed) == to_lower(text);
    if (!fine) {
      fail_at(value.origin, entry.path + " is only understood as " + join(rule.values, ", ") + " (" + rule.reason +
                                "), found " + shown(value) + "; change or remove it.");
    }
    options_.ignored->push_back({entry.path, rule.reason, value.origin});
  }

  static void check_target(const IndexEntry& entry, const IndexEntry* row, const Node& value, Node& out) {
    std::vector<std::string> supported;
    for (const Component* component : entry.components()) {
      for (const std::string& target : component->targets) supported.push_back(target);
    }
    const std::string where = entry.path.empty() ? "the top of the file" : entry.path;
    if (value.is_null() || value.is_missing_marker()) return;
    if (!value.is_scalar())
      fail_at(value.origin, "_target_ of " + where + " must be the name of a class, found " + shown(value) + ".");
    for (const std::string& target : supported) {
      if (value.text() != target && last_word(value.text()) != last_word(target)) continue;
      if (row != nullptr) {
        Node matched = Node::scalar(last_word(target), true);
        matched.origin = value.origin;
        out.entries().emplace_back("_target_", std::move(matched));
      }
      return;
    }
    fail_at(value.origin,
            "_target_ " + shown(value.text()) + " is not supported for " + where + "; supported " +
                (supported.empty() ? "there is none, so remove the line." : "are " + join(supported, ", ") + "."));
  }

  const SchemaIndex& index_;
  const CanonicalOptions& options_;
  std::vector<Renamed> renamed_;
};

void fill_origins(Node& node, const Origin& origin) {
  if (node.origin.kind == OriginKind::Default) node.origin = origin;
  for (Node& item : node.items()) fill_origins(item, origin);
  for (auto& [key, value] : node.entries()) fill_origins(value, origin);
}

}  // namespace

Node canonical(const Node& layer, const SchemaIndex& index, const CanonicalOptions& options) {
  return Canonicaliser(index, options).run(layer);
}

void merge_into(Node& tree, Node layer) {
  if (!layer.is_map() || !tree.is_map()) {
    tree = std::move(layer);
    return;
  }
  tree.origin = layer.origin;
  if (tree.entries().empty()) {
    tree.entries() = std::move(layer.entries());
    return;
  }
  std::unordered_map<std::string, size_t>
      places;  // only for large maps: a hostile file must not cost a square of its size
  const bool large = tree.entries().size() > 32;
  for (size_t i = 0; large && i < tree.entries().size(); ++i) places.emplace(tree.entries()[i].first, i);
  for (auto& [key, value] : layer.entries()) {
    Node* before = nullptr;
    if (large) {
      const auto found = places.find(key);
      if (found != places.end()) before = &tree.entries()[found->second].second;
    } else {
      before = tree.find(key);
    }
    if (before != nullptr) {
      merge_into(*before, std::move(value));
    } else {
      if (large) places.emplace(key, tree.entries().size());
      tree.entries().emplace_back(std::move(key), std::move(value));
    }
  }
}

void convert_alias(Node& node) {
  const Alias* alias = node.unconverted;
  node.unconverted = nullptr;
  if (alias == nullptr || !alias->convert || node.is_missing_marker()) return;
  const Origin origin = node.origin;
  try {
    node = alias->convert(node);
  } catch (const ConfigError& error) {
    const std::string place = printable(origin.text());
    if (starts_with(error.what(), place)) throw;
    fail_at(origin, error.what());
  }
  fill_origins(node, origin);
  node.origin = origin;
}

void convert_aliases(Node& tree) {
  if (tree.unconverted != nullptr) convert_alias(tree);
  for (Node& item : tree.items()) convert_aliases(item);
  for (auto& [key, value] : tree.entries()) convert_aliases(value);
}

}  // namespace redline::config
