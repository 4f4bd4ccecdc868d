// The recipe's JSON Schema (draft 2020-12), for editors and for checking a file without redline. It follows the index
// of names, so aliases and accepted keys are in it; a `${}` reference or `???` may stand anywhere. It is as strict as
// JSON can be: ranges of numbers written with a unit, and what a conversion makes of an alias, are only checked by
// redline itself.
#include <algorithm>

#include "config/describe.h"
#include "config/schema_index.h"
#include "config/yaml_writer.h"
#include "core/strings.h"

namespace redline::config {

namespace {

Node json_text(std::string value) { return Node::scalar(std::move(value), true); }
Node json_number(double value) { return Node::scalar(format_double(value)); }
Node json_texts(const std::vector<std::string>& values) {
  std::vector<Node> items;
  for (const std::string& value : values) items.push_back(json_text(value));
  return Node::list(std::move(items));
}
Node json_type(const char* type) { return Node::map({{"type", json_text(type)}}); }
Node json_reference() { return Node::map({{"$ref", json_text("#/$defs/reference")}}); }
Node json_pattern(const char* pattern) {
  return Node::map({{"type", json_text("string")}, {"pattern", json_text(pattern)}});
}

constexpr const char* kNumberText =
    "^[-+]?([0-9][0-9_]*(\\.[0-9]*)?|\\.[0-9]+)([eE][-+]?[0-9]+)?$|^[-+]?\\.?(inf|Inf|INF)$";

// A word of a table as YAML readers may hand it over: 32 as a number, false as a boolean, null.
void add_word(std::vector<Node>& words, const std::string& word) {
  words.push_back(json_text(word));
  const Node plain = Node::scalar(word);
  if (to_lower(word) == "null") words.push_back(Node());
  if (plain.as_bool()) words.push_back(Node::scalar(*plain.as_bool() ? "true" : "false"));
  if (const auto value = plain.as_double()) words.push_back(json_number(*value));
}
Node one_of_words(const std::vector<std::string>& choices) {
  std::vector<Node> words;
  for (const std::string& word : choices) add_word(words, word);
  return Node::map({{"enum", Node::list(std::move(words))}});
}

Node numeric(const Row& row, const char* type) {
  Node schema = json_type(type);
  if (row.min) schema.set_path(row.min_open ? "exclusiveMinimum" : "minimum", json_number(*row.min));
  if (row.max) schema.set_path(row.max_open ? "exclusiveMaximum" : "maximum", json_number(*row.max));
  return schema;
}

void add_alternatives(std::vector<Node>& any, const Row& row, std::string_view type) {
  if (starts_with(type, "auto|")) {
    any.push_back(Node::map({{"const", json_text("auto")}}));
    add_alternatives(any, row, type.substr(5));
  } else if (starts_with(type, "null|")) {
    any.push_back(json_type("null"));
    add_alternatives(any, row, type.substr(5));
  } else if (starts_with(type, "list of ")) {
    std::vector<Node> items;
    add_alternatives(items, row, type.substr(8));
    items.push_back(json_reference());
    Node list = json_type("array");
    list.set_path("items", Node::map({{"anyOf", Node::list(std::move(items))}}));
    any.push_back(std::move(list));
    if (type == "list of string") any.push_back(json_type("string"));
  } else if (!row.choices.empty()) {
    any.push_back(one_of_words(row.choices));
  } else if (type == "bool") {
    any.push_back(one_of_words({"true", "false", "yes", "no", "on", "off"}));
  } else if (type == "int" || type == "number") {
    any.push_back(numeric(row, type == "int" ? "integer" : "number"));
    any.push_back(json_pattern(kNumberText));
    if (!row.unit.empty()) any.push_back(json_pattern("^[0-9.]+ *[A-Za-z]+|^[0-9]+:[0-9]+:[0-9]+"));
  } else if (type == "string") {
    any.push_back(Node::map({{"type", json_texts({"string", "number", "boolean"})}}));
  } else {
    any.push_back(Node::map());
  }
}

Node map_schema(const IndexEntry& entry);

Node entry_schema(const IndexEntry& entry) {
  std::vector<Node> any;
  std::string sentence;
  if (entry.alias != nullptr) {
    sentence =
        "Another name for " + entry.target->path + (entry.alias->note.empty() ? "." : ": " + entry.alias->note + ".");
    if (entry.alias->convert)
      any.push_back(entry.alias->boolean ? one_of_words({"true", "false", "yes", "no", "on", "off"}) : Node::map());
    else
      add_alternatives(any, *entry.target->row, entry.target->row->type);
  }
  if (entry.row != nullptr) {
    sentence = entry.row->sentence;
    add_alternatives(any, *entry.row, entry.row->type);
  }
  if (entry.accepted != nullptr) {
    sentence = "Has no effect: " + entry.accepted->reason + ".";
    any.push_back(entry.accepted->values.empty() ? Node::map() : one_of_words(entry.accepted->values));
  }
  const bool raw = entry.row != nullptr && ends_with(entry.row->type, "node");
  if (!raw && (entry.is_map() || !entry.children.empty())) {
    any.push_back(map_schema(entry));
    any.push_back(json_type("null"));
    for (const Component* component : entry.components()) {
      if (sentence.empty()) sentence = component->sentence;
      const IndexEntry* shorthand = component->shorthand.empty() ? nullptr : entry.child(component->shorthand);
      if (shorthand != nullptr) add_alternatives(any, *shorthand->row, shorthand->row->type);
    }
    if (entry.group != nullptr && !entry.group->sentence.empty()) sentence = entry.group->sentence;
  }
  any.push_back(json_reference());
  Node schema = Node::map();
  if (!sentence.empty()) schema.set_path("description", json_text(sentence));
  schema.set_path("anyOf", Node::list(std::move(any)));
  return schema;
}

Node target_schema(const std::vector<const Component*>& components) {
  std::string words;
  for (const Component* component : components) {
    for (const std::string& target : component->targets)
      words += (words.empty() ? "" : "|") + target.substr(target.rfind('.') + 1);
  }
  if (words.empty()) return json_type("null");
  const std::string pattern = "(^|\\.)(" + words + ")$";
  return Node::map({{"anyOf", Node::list({json_type("null"), json_pattern(pattern.c_str()), json_reference()})}});
}

Node map_schema(const IndexEntry& entry) {
  Node properties = Node::map();
  if (entry.is_map()) properties.entries().emplace_back("_target_", target_schema(entry.components()));
  for (const IndexEntry* child : entry.children) {
    if (child->word != "_target_") properties.entries().emplace_back(child->word, entry_schema(*child));
  }
  return Node::map({{"type", json_text("object")},
                    {"properties", std::move(properties)},
                    {"additionalProperties", Node::scalar("false")}});
}

Node recipe_schema(const Schema& schema) {
  const SchemaIndex index(schema);
  Node recipe = map_schema(index.root());
  Node& properties = *recipe.find("properties");
  Node list = json_type("array");
  list.set_path("items", json_type("string"));
  properties.set_path("base",
                      Node::map({{"description", json_text("Another recipe to start from, relative to this file.")},
                                 {"anyOf", Node::list({json_type("string"), list})}}));
  Node presets = json_type("object");
  presets.set_path("description", json_text("Overrides by name, chosen with --preset."));
  presets.set_path("additionalProperties", Node::map({{"type", json_texts({"object", "array", "null"})}}));
  properties.set_path("presets", std::move(presets));
  return recipe;
}

}  // namespace

std::string options_json_schema(const std::vector<JobKind>& kinds) {
  Node root = Node::map();
  root.entries().emplace_back("$schema", json_text("https://json-schema.org/draft/2020-12/schema"));
  root.entries().emplace_back("title", json_text("redline recipe"));
  Node marker = json_pattern("\\$\\{|^\\?\\?\\?$");
  marker.set_path("description", json_text("A reference to another value, or ??? for one that must be given."));
  root.entries().emplace_back("$defs", Node::map({{"reference", std::move(marker)}}));
  if (kinds.size() == 1) {
    Node recipe = recipe_schema(*kinds.front().schema);
    for (auto& entry : recipe.entries()) root.entries().push_back(std::move(entry));
    return write_json(root);
  }
  // With several tasks, the key `task` tells which table counts; a file without it (a base, or NeMo's) may be any of
  // them.
  std::vector<Node> rules, any;
  for (const JobKind& kind : kinds) {
    Node recipe = recipe_schema(*kind.schema);
    root.find("$defs")->entries().emplace_back("task_" + kind.task, std::move(recipe));
    const Node use = Node::map({{"$ref", json_text("#/$defs/task_" + kind.task)}});
    Node is_task = Node::map({{"required", json_texts({"task"})}});
    is_task.set_path("properties.task.const", json_text(kind.task));
    rules.push_back(Node::map({{"if", std::move(is_task)}, {"then", use}}));
    any.push_back(use);
  }
  root.entries().emplace_back("type", json_text("object"));
  root.entries().emplace_back("allOf", Node::list(std::move(rules)));
  root.entries().emplace_back("anyOf", Node::list(std::move(any)));
  return write_json(root);
}

}  // namespace redline::config
