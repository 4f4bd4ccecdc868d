#include "config/schema_index.h"

#include <algorithm>

#include "config/request/messages.h"
#include "core/check.h"
#include "core/strings.h"

namespace redline::config {

namespace {

std::string joined_path(const std::string& parent, std::string_view word) {
  return parent.empty() ? std::string(word) : parent + "." + std::string(word);
}

bool holds_raw_values(const IndexEntry& entry) {
  const IndexEntry& owner = entry.target != nullptr ? *entry.target : entry;
  if (entry.accepted != nullptr) return true;
  return owner.row != nullptr &&
         (owner.row->type.find("list of ") != std::string::npos || owner.row->type.find("node") != std::string::npos);
}

std::string with_underscores(std::string_view name) {
  std::string folded(name);
  std::replace(folded.begin(), folded.end(), '-', '_');
  return folded;
}

}  // namespace

const IndexEntry* IndexEntry::child(std::string_view key) const {
  for (const IndexEntry* entry : children) {
    if (entry->word == key) return entry;
  }
  return nullptr;
}

std::vector<const Component*> IndexEntry::components() const {
  std::vector<const Component*> found;
  if (group != nullptr) found.push_back(group->component.get());
  for (const Section* section : sections) found.push_back(section->component.get());
  return found;
}

void* IndexEntry::object(const Component* component) const {
  for (const Section* section : sections) {
    if (section->component.get() == component) return section->object;
  }
  if (group == nullptr || group->component.get() != component) return nullptr;
  for (const Component* owner : parent->components()) {
    const bool owns =
        std::any_of(owner->groups.begin(), owner->groups.end(), [&](const auto& one) { return &one == group; });
    void* object_of_parent = owns ? parent->object(owner) : nullptr;
    if (object_of_parent != nullptr) return group->object(object_of_parent);
  }
  return nullptr;
}

bool IndexEntry::is_boolean() const {
  if (alias != nullptr && alias->convert) return alias->boolean;
  const Row* meant = target != nullptr ? target->row : row;
  return meant != nullptr && ends_with(meant->type, "bool") && !starts_with(meant->type, "list of ");
}

SchemaIndex::SchemaIndex(const Schema& schema) {
  entries_.emplace_back();
  // Sections first, so that aliases and groups meet them; then the names inside.
  for (const Section& section : schema.sections()) {
    IndexEntry& entry = section.path.empty() ? entries_.front() : at(section.path);
    entry.sections.push_back(&section);
  }
  for (const Section& section : schema.sections()) {
    IndexEntry& entry = section.path.empty() ? entries_.front() : at(section.path);
    add_component(entry, *section.component);
  }
  const size_t own = entries_.size();
  for (size_t i = 0; i < own; ++i) {
    IndexEntry& entry = entries_[i];
    if (entry.row == nullptr) continue;
    for (const Alias& alias : entry.row->aliases) {
      const bool absolute = starts_with(alias.path, ".");
      const std::string path = absolute ? alias.path.substr(1) : joined_path(entry.parent->path, alias.path);
      IndexEntry& other = at(path);
      REDLINE_CHECK(other.row == nullptr && other.alias == nullptr,
                    "an alias is not the name of another option: " + path);
      other.alias = &alias;
      other.target = &entry;
    }
  }
}

IndexEntry& SchemaIndex::below(IndexEntry& parent, std::string_view word) {
  for (IndexEntry* entry : parent.children) {
    if (entry->word == word) return *entry;
  }
  IndexEntry& entry = entries_.emplace_back();
  entry.word = word;
  entry.path = joined_path(parent.path, word);
  entry.parent = &parent;
  parent.children.push_back(&entry);
  return entry;
}

IndexEntry& SchemaIndex::at(std::string_view path) {
  IndexEntry* entry = &entries_.front();
  for (const std::string& word : split(path, '.')) entry = &below(*entry, word);
  return *entry;
}

void SchemaIndex::add_component(IndexEntry& entry, const Component& component) {
  for (const auto& row : component.rows) {
    IndexEntry& own = below(entry, row->name);
    REDLINE_CHECK(own.row == nullptr && own.group == nullptr,
                  "two components do not declare the same option: " + own.path);
    own.row = row.get();
  }
  for (const Component::Group& group : component.groups) {
    IndexEntry& own = below(entry, group.name);
    REDLINE_CHECK(own.row == nullptr && !own.is_map(), "two components do not declare the same group: " + own.path);
    own.group = &group;
    add_component(own, *group.component);
  }
  for (const Component::Accepted& accepted : component.accepted) {
    IndexEntry* own = &entry;
    for (const std::string& word : split(accepted.key, '.')) own = &below(*own, word);
    REDLINE_CHECK(own->row == nullptr && own->group == nullptr, "a key is either an option or ignored: " + own->path);
    own->accepted = &accepted;
  }
}

const std::vector<SchemaIndex::Bare>& SchemaIndex::bare_words() const {
  if (!bare_.empty()) return bare_;
  for (const IndexEntry& entry : entries_) {
    const bool at_root = entry.parent == &entries_.front();
    if (entry.row != nullptr && !entry.row->flag.empty()) bare_.push_back({entry.row->flag, &entry, 0});
    if (entry.alias != nullptr && at_root) bare_.push_back({entry.word, &entry, 1});
    if ((entry.row == nullptr && entry.alias == nullptr) || at_root || entry.word == "_target_") continue;
    if (entry.alias != nullptr && starts_with(entry.alias->path, ".")) continue;  // absolute and dotted: only whole
    bare_.push_back({entry.word, &entry, entry.parent->sections.empty() ? 3 : 2});
  }
  // Entries are stored in the order of the schema, with aliases last; a stable sort keeps the section listed first in
  // front.
  std::stable_sort(bare_.begin(), bare_.end(),
                   [](const Bare& a, const Bare& b) { return std::tie(a.word, a.rank) < std::tie(b.word, b.rank); });
  return bare_;
}

const IndexEntry* SchemaIndex::find(std::string_view path, std::string* rest) const {
  const IndexEntry* entry = &entries_.front();
  const std::vector<std::string> words = split(path, '.');
  for (size_t i = 0; i < words.size(); ++i) {
    const IndexEntry* next = entry->child(words[i]);
    if (next == nullptr) {
      if (rest == nullptr || !holds_raw_values(*entry)) return nullptr;
      *rest = join(std::span(words).subspan(i), ".");
      return entry;
    }
    entry = next;
  }
  return entry;
}

const IndexEntry* SchemaIndex::bare(std::string_view word, const Origin& where) const {
  const std::vector<Bare>& words = bare_words();
  const auto first =
      std::lower_bound(words.begin(), words.end(), word, [](const Bare& a, std::string_view b) { return a.word < b; });
  if (first == words.end() || first->word != word) return nullptr;
  // Rows of sections: the section listed first wins. Rows of groups have no such order: they must be told apart.
  if (first->rank == 3) {
    const auto next = std::next(first);
    if (next != words.end() && next->word == word) {
      fail_at(where, shown(word) + " could mean " + first->entry->path + " or " + next->entry->path +
                         "; give the whole name.");
    }
  }
  return first->entry;
}

const IndexEntry* SchemaIndex::find_flag(std::string_view name, std::string* rest, const Origin& where) const {
  for (const std::string& spelling : {std::string(name), with_underscores(name)}) {
    if (const IndexEntry* entry = find(spelling, rest)) return entry;
    if (spelling.find('.') == std::string::npos) {
      if (const IndexEntry* entry = bare(spelling, where)) return entry;
    }
  }
  return nullptr;
}

const IndexEntry& SchemaIndex::flag(std::string_view name, std::string* rest, const Origin& where) const {
  const IndexEntry* entry = find_flag(name, rest, where);
  if (entry == nullptr) unknown_flag(name, where);
  return *entry;
}

std::vector<std::pair<std::string, const IndexEntry*>> SchemaIndex::bare_flags() const {
  std::vector<std::pair<std::string, const IndexEntry*>> flags;
  for (const Bare& one : bare_words()) {
    if (!flags.empty() && flags.back().first == one.word) {
      const IndexEntry*& known = flags.back().second;
      if (known != nullptr && one.rank == 3 && known->parent->sections.empty()) known = nullptr;  // ambiguous
      continue;
    }
    flags.emplace_back(one.word, one.entry);
  }
  // A name at the top of the file is found before any bare word.
  std::erase_if(flags, [this](const auto& flag) {
    const IndexEntry* top = entries_.front().child(flag.first);
    return flag.second == nullptr || (top != nullptr && top != flag.second);
  });
  return flags;
}

void SchemaIndex::unknown_key(const IndexEntry& parent, std::string_view key, const Origin& where) const {
  const std::string path = joined_path(parent.path, key);
  std::vector<std::string> siblings;
  for (const IndexEntry* entry : parent.children) siblings.push_back(entry->word);
  const std::string what = shown(path) + " is not an option";
  if (did_you_mean(key, siblings)) fail_at(where, what + nearest_text(key, siblings));
  // The right word in the wrong place is the next likely slip.
  std::vector<std::string> words;
  for (const Bare& one : bare_words()) {
    if (one.word == key) fail_at(where, what + "; did you mean '" + one.entry->path + "'?");
    words.push_back(one.word);
  }
  for (const IndexEntry* entry : entries_.front().children) {
    if (entry->word == key) fail_at(where, what + "; did you mean '" + entry->path + "'?");
  }
  if (const auto nearest = did_you_mean(key, words)) {
    for (const Bare& one : bare_words()) {
      if (one.word == *nearest) fail_at(where, what + "; did you mean '" + one.entry->path + "'?");
    }
  }
  fail_at(where, what + nearest_text(key, siblings));
}

void SchemaIndex::unknown_flag(std::string_view name, const Origin& where) const {
  const IndexEntry* parent = &entries_.front();
  for (const std::string& word : split(name, '.')) {
    const IndexEntry* next = parent->child(word);
    if (next == nullptr) unknown_key(*parent, word, where);
    parent = next;
  }
  unknown_key(*parent, "", where);
}

}  // namespace redline::config
