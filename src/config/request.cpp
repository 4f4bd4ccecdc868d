// Reads a job's layers in the order of their strength and makes one tree of them: base files, file, preset, tuned,
// flags.
#include <algorithm>
#include <set>

#include "config/job.h"
#include "config/request/alternatives.h"
#include "config/request/canonical.h"
#include "config/request/limits.h"
#include "config/request/messages.h"
#include "config/request/overrides.h"
#include "config/request/paths.h"
#include "config/request/references.h"
#include "config/schema_index.h"
#include "core/error.h"
#include "core/strings.h"

namespace redline::config {

namespace {

// The file with its bases in front, weakest first; `base` keys taken out.
void read_with_bases(const std::filesystem::path& path, std::vector<std::filesystem::path>& open,
                     std::vector<Node>& layers) {
  std::error_code ignored;
  const std::filesystem::path identity = std::filesystem::weakly_canonical(path, ignored);
  if (std::find(open.begin(), open.end(), identity) != open.end()) {
    throw ConfigError(printable("'" + path.string() +
                                "' is its own base, directly or through others; remove one of the 'base:' lines."));
  }
  if (open.size() >= kMaxBaseFiles || layers.size() >= 4 * kMaxBaseFiles) {
    throw ConfigError(printable("'" + path.string() + "' has more than " + std::to_string(kMaxBaseFiles) +
                                " bases above each other; join some."));
  }
  open.push_back(identity);
  Node root = read_yaml_file(path);
  if (const Node* base = root.find("base")) {
    const std::vector<Node> names = base->is_list() ? base->items() : std::vector<Node>{*base};
    for (const Node& name : names) {
      if (!name.is_scalar() || name.text().empty()) {
        fail_at(name.origin,
                "base must be the path of another recipe, relative to this file, found " + shown(name) + ".");
      }
      const std::filesystem::path other = path.parent_path() / name.text();
      if (!std::filesystem::exists(other, ignored)) {
        fail_at(name.origin, "the base " + shown(other.string()) +
                                 " does not exist; check the path, which is relative to this file.");
      }
      read_with_bases(other, open, layers);
    }
    root.remove_path("base");
  }
  open.pop_back();
  layers.push_back(std::move(root));
}

void set_preset_origins(Node& node, const std::string& preset) {
  node.origin.kind = OriginKind::Preset;
  node.origin.source = preset + ", " + node.origin.source;
  for (Node& item : node.items()) set_preset_origins(item, preset);
  for (auto& [key, value] : node.entries()) set_preset_origins(value, preset);
}

Node take_presets(std::vector<Node>& layers) {
  Node presets = Node::map();
  for (Node& layer : layers) {
    if (const Node* own = layer.find("presets")) {
      if (!own->is_map() && !own->is_null()) {
        fail_at(own->origin, "presets must map names to overrides, found " + shown(*own) + ".");
      }
      if (own->is_map()) merge_into(presets, *own);
      layer.remove_path("presets");
    }
  }
  return presets;
}

Node chosen_preset(const Node& presets, const RequestSource& source) {
  const Node* found = presets.find(*source.preset);
  if (found == nullptr) {
    std::vector<std::string> names;
    for (const auto& entry : presets.entries()) names.push_back(entry.first);
    const std::string file = source.file ? "'" + source.file->string() + "'" : "the request";
    throw ConfigError(
        printable("There is no preset '" + *source.preset + "' in " + file +
                  (names.empty() ? ", which has none; leave out --preset." : nearest_text(*source.preset, names))));
  }
  Node preset = *found;
  set_preset_origins(preset, *source.preset);
  if (!preset.is_map() && !preset.is_list() && !preset.is_null()) {
    fail_at(preset.origin, "a preset is a map of keys or a list of key=value, found " + shown(preset) + ".");
  }
  return preset;
}

class RequestReader {
 public:
  RequestReader(const RequestSource& source, const Schema& schema)
      : source_(source), index_(schema), alternatives_(index_) {}

  Node run() {
    std::vector<Node> layers;
    std::vector<std::filesystem::path> open;
    if (source_.file) read_with_bases(*source_.file, open, layers);
    const Node presets = take_presets(layers);
    for (const Node& layer : layers) variables_.merge(referenced_paths(layer));
    for (Node& layer : layers) {
      alternatives_.begin_layer();
      merge(canonical(layer, index_, canonical_options()));
      merge_into(raw_, std::move(layer));
    }
    alternatives_.begin_layer();
    if (source_.preset) apply_preset(chosen_preset(presets, source_));
    alternatives_.begin_layer();
    apply_words(source_.tuned, OriginKind::Tuned, source_.tuned_by);
    alternatives_.begin_layer();
    apply_words(source_.overrides, OriginKind::Flag, "");
    resolve_references(tree_, {&raw_, [this](const std::string& path) { return default_of(path); }});
    alternatives_.check(tree_);
    anchor_paths(tree_, index_);
    return std::move(tree_);
  }

 private:
  void merge(Node layer) {
    alternatives_.replace(tree_, layer);
    merge_into(tree_, std::move(layer));
  }

  CanonicalOptions canonical_options() const {
    return {[this](const std::string& path) { return is_variable(path); }, nullptr};
  }

  // A key that no table has but a reference names, or leads to, or that lies below such a key.
  bool is_variable(const std::string& path) const {
    if (variables_.contains(path)) return true;
    const auto after = variables_.lower_bound(path + ".");
    if (after != variables_.end() && starts_with(*after, path + ".")) return true;
    for (size_t dot = path.rfind('.'); dot != std::string::npos && dot > 0; dot = path.rfind('.', dot - 1)) {
      if (variables_.contains(path.substr(0, dot))) return true;
    }
    return false;
  }

  std::optional<Node> default_of(const std::string& path) const {
    const IndexEntry* entry = index_.find(path);
    if (entry == nullptr || entry->row == nullptr) return std::nullopt;
    for (const Component* component : entry->parent->components()) {
      for (const auto& row : component->rows) {
        if (row.get() != entry->row) continue;
        const void* object = entry->parent->object(component);
        return object != nullptr ? std::optional<Node>(row->get(object)) : std::nullopt;
      }
    }
    return std::nullopt;
  }

  void apply_preset(const Node& preset) {
    if (preset.is_list()) {
      std::vector<std::string> words;
      for (const Node& item : preset.items()) {
        if (!item.is_scalar())
          fail_at(item.origin, "a preset's list holds key=value texts, found " + shown(item) + ".");
        words.push_back(item.text());
      }
      apply_words(words, OriginKind::Preset, preset.origin.source);
      return;
    }
    for (const auto& [key, value] : preset.entries()) {
      Override one;
      one.origin = value.origin;
      one.entry = index_.find_flag(key, &one.rest, value.origin);
      if (one.entry == nullptr && !is_variable(key)) index_.unknown_flag(key, value.origin.key());
      one.path = one.entry != nullptr ? one.entry->path : key;
      one.value = value;
      apply(one);
    }
  }

  void apply_words(const std::vector<std::string>& words, OriginKind kind, const std::string& origin) {
    const OverrideOptions options{kind, origin, [this](const std::string& path) { return is_variable(path); }};
    for (const Override& one : parse_overrides(words, index_, options)) apply(one);
  }

  void apply(const Override& one) {
    if (one.remove) {
      remove(one);
    } else if (!one.rest.empty()) {
      set_item(one);
    } else {
      Node layer = Node::map();
      layer.origin = one.origin;
      layer.set_path(one.path, *one.value);
      merge_into(raw_, layer);
      if (one.entry != nullptr) merge(canonical(layer, index_, canonical_options()));
    }
  }

  static std::string table_path(const Override& one) {
    return one.entry != nullptr && one.entry->target != nullptr ? one.entry->target->path : one.path;
  }

  // An item of a list: the list must be there to be changed, so the default is put in first.
  void set_item(const Override& one) {
    const std::string path = table_path(one);
    if (tree_.find_path(path) == nullptr) {
      if (std::optional<Node> held = default_of(path); held && !held->is_null()) tree_.set_path(path, std::move(*held));
    }
    Node layer = Node::map();
    layer.set_path(path, *one.value);
    alternatives_.replace(tree_, layer);
    tree_.set_path(path + "." + one.rest, *one.value);
  }

  void remove(const Override& one) {
    const std::string path = table_path(one) + (one.rest.empty() ? "" : "." + one.rest);
    const Node* found = one.entry != nullptr ? tree_.find_path(path) : raw_.find_path(path);
    if (one.value && found != nullptr && !(*found == *one.value)) {
      fail_at(one.origin, path + " is " + shown(*found) + ", not " + shown(*one.value) + "; write ~" + path +
                              " to remove it anyway.");
    }
    tree_.remove_path(path);
    raw_.remove_path(path);
  }

  const RequestSource& source_;
  SchemaIndex index_;
  Alternatives alternatives_;
  std::set<std::string> variables_;
  Node raw_ = Node::map();   // as written: for references to names the tables do not have
  Node tree_ = Node::map();  // under the tables' names
};

}  // namespace

Node read_request(const RequestSource& source, const Schema& schema) { return RequestReader(source, schema).run(); }

std::optional<std::string> peek_request(const RequestSource& source, std::string_view path) {
  Node tree = Node::map();
  std::vector<Node> layers;
  std::vector<std::filesystem::path> open;
  if (source.file) read_with_bases(*source.file, open, layers);
  const Node presets = take_presets(layers);
  for (Node& layer : layers) merge_into(tree, std::move(layer));
  if (source.preset) {
    const Node preset = chosen_preset(presets, source);
    for (const auto& [key, value] : preset.entries()) {
      if (key == path) tree.set_path(path, value);
    }
  }
  const std::string name(path);
  for (const std::vector<std::string>* words : {&source.tuned, &source.overrides}) {
    for (size_t i = 0; i < words->size(); ++i) {
      const std::string& word = (*words)[i];
      if (word == "--" + name && i + 1 < words->size()) return (*words)[i + 1];
      for (const char* prefix : {"--", "++", "+", ""}) {
        if (starts_with(word, prefix + name + "="))
          tree.set_path(path, override_value(word.substr(word.find('=') + 1), Origin{}));
      }
    }
  }
  const Node* found = tree.find_path(path);
  if (found == nullptr || !found->is_scalar() || found->is_missing_marker()) return std::nullopt;
  return found->text();
}

std::vector<std::string> preset_names(const std::filesystem::path& file) {
  std::vector<Node> layers;
  std::vector<std::filesystem::path> open;
  read_with_bases(file, open, layers);
  const Node presets = take_presets(layers);
  std::vector<std::string> names;
  for (const auto& entry : presets.entries()) names.push_back(entry.first);
  return names;
}

}  // namespace redline::config
