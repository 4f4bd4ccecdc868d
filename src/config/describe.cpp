#include "config/describe.h"

#include <algorithm>
#include <map>

#include "config/schema_index.h"
#include "core/check.h"
#include "core/strings.h"

namespace redline::config {

namespace {

// Walks sections and groups in the order of the schema; objects give the defaults, made fresh where an optional group
// is absent.
class Describer {
 public:
  explicit Describer(const Schema& schema) : index_(schema) {
    for (const auto& [word, entry] : index_.bare_flags()) {
      const IndexEntry* row = entry->target != nullptr ? entry->target : entry;
      if (entry->target == nullptr) bare_.emplace(row->path, word);
    }
    for (const IndexEntry& entry : index_.entries()) {
      if (entry.target != nullptr) aliases_[entry.target->path].emplace_back(entry.path, entry.alias);
    }
    for (const Section& section : schema.sections()) {
      add(*section.component, section.object, section.path, section.component->sentence, section.optional);
    }
  }

  std::vector<SectionDescription> take() { return std::move(found_); }

 private:
  void add(const Component& component, void* object, const std::string& path, const std::string& sentence,
           bool optional) {
    std::shared_ptr<void> fresh;
    if (object == nullptr) {
      fresh = component.make();
      object = fresh.get();
    }
    SectionDescription section{path, sentence, optional, &component, {}};
    for (const auto& row : component.rows) {
      OptionDescription option;
      option.path = path.empty() ? row->name : path + "." + row->name;
      option.row = row.get();
      option.default_value = row->get(object);
      if (const auto found = aliases_.find(option.path); found != aliases_.end()) option.aliases = found->second;
      if (const auto found = bare_.find(option.path); found != bare_.end()) option.bare = found->second;
      section.options.push_back(std::move(option));
    }
    found_.push_back(std::move(section));
    for (const Component::Group& group : component.groups) {
      const std::string own = path.empty() ? group.name : path + "." + group.name;
      const std::string& words = group.sentence.empty() ? group.component->sentence : group.sentence;
      add(*group.component, group.object(object), own, words, static_cast<bool>(group.create));
    }
  }

  SchemaIndex index_;
  std::map<std::string, std::string> bare_;
  std::map<std::string, std::vector<std::pair<std::string, const Alias*>>> aliases_;
  std::vector<SectionDescription> found_;
};

std::string plain_type(std::string_view type) {
  while (starts_with(type, "auto|") || starts_with(type, "null|")) type.remove_prefix(5);
  return std::string(type);
}

}  // namespace

std::vector<SectionDescription> describe_sections(const Schema& schema) { return Describer(schema).take(); }

std::string limits_text(const Row& row) {
  std::vector<std::string> parts;
  if (!row.choices.empty()) parts.push_back(join(row.choices, ", "));
  if (row.min && row.max && !row.min_open && !row.max_open) {
    parts.push_back(format_double(*row.min) + " to " + format_double(*row.max));
  } else {
    if (row.min) parts.push_back((row.min_open ? "above " : "at least ") + format_double(*row.min));
    if (row.max) parts.push_back((row.max_open ? "below " : "at most ") + format_double(*row.max));
  }
  if (!row.unit.empty()) parts.push_back("in " + row.unit);
  return join(parts, "; ");
}

namespace {

void add_dimension(const std::string& path, const Row& row, const Node& value, std::vector<SearchDimension>& space) {
  SearchDimension dimension{path,
                            row.name,
                            row.effect,
                            row.rule,
                            row.tried.empty() ? row.choices : row.tried,
                            value.is_scalar() ? value.text() : std::string()};
  if (dimension.tried.empty() && plain_type(row.type) == "bool") dimension.tried = {"false", "true"};
  REDLINE_CHECK(!dimension.tried.empty() || !dimension.rule.empty(),
                "a tunable row names its values or its rule: " + path);
  space.push_back(std::move(dimension));
}

}  // namespace

std::vector<SearchDimension> search_space(const Resolved& resolved) {
  std::vector<SearchDimension> space;
  for (const ResolvedValue& value : resolved.values())
    if (value.row != nullptr && value.row->tunable) add_dimension(value.path, *value.row, value.value, space);
  return space;
}

std::vector<SearchDimension> search_space(const Schema& schema, const Node& tree) {
  std::vector<SearchDimension> space;
  for (const SectionDescription& section : describe_sections(schema)) {
    for (const OptionDescription& option : section.options) {
      const Node* const held = option.row->tunable ? tree.find_path(option.path) : nullptr;
      if (held != nullptr) add_dimension(option.path, *option.row, *held, space);
    }
  }
  return space;
}

}  // namespace redline::config
