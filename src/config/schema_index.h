// Every name a job may use, as a tree of words: rows, groups, sections, aliases and accepted keys of all sections
// together. It answers what a key means, which bare flag means which row, and what was probably meant. Built from a
// Schema in well under a millisecond, so it is made where it is needed and not kept.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/job.h"

namespace redline::config {

struct IndexEntry {
  std::string word, path;
  IndexEntry* parent = nullptr;
  std::vector<IndexEntry*> children;  // in the order of the tables

  const Row* row = nullptr;                       // the value this key holds
  const Component::Group* group = nullptr;        // or the map it is
  std::vector<const Section*> sections;           // or the sections that live here (several rooms may share a path)
  const Alias* alias = nullptr;                   // or another name for
  const IndexEntry* target = nullptr;             // this row
  const Component::Accepted* accepted = nullptr;  // or a key that is read and ignored

  const IndexEntry* child(std::string_view key) const;
  bool is_map() const { return group != nullptr || !sections.empty(); }
  // The components whose rows are directly below this entry.
  std::vector<const Component*> components() const;
  // The object the rows below this entry are bound to, for one of its components; null when an optional group is
  // absent.
  void* object(const Component* component) const;
  // Takes a flag without a word after it.
  bool is_boolean() const;
};

class SchemaIndex {
 public:
  explicit SchemaIndex(const Schema& schema);
  SchemaIndex(const SchemaIndex&) = delete;
  SchemaIndex& operator=(const SchemaIndex&) = delete;

  const IndexEntry& root() const { return entries_.front(); }
  // The entry at a dotted path, or null. `rest` receives what follows a row that holds a list or a raw subtree.
  const IndexEntry* find(std::string_view path, std::string* rest = nullptr) const;

  // What a key on the command line means: a path, or one word that stands for a row (see docs/new_option.md). Throws
  // ConfigError when it is unknown or means several rows.
  const IndexEntry& flag(std::string_view name, std::string* rest, const Origin& where) const;
  const IndexEntry* find_flag(std::string_view name, std::string* rest, const Origin& where) const;
  // Every bare word that is a flag, with the row it means.
  std::vector<std::pair<std::string, const IndexEntry*>> bare_flags() const;

  // The error for a key that is not there, with the likeliest name.
  [[noreturn]] void unknown_key(const IndexEntry& parent, std::string_view key, const Origin& where) const;
  [[noreturn]] void unknown_flag(std::string_view name, const Origin& where) const;

  const std::deque<IndexEntry>& entries() const { return entries_; }

 private:
  struct Bare {
    std::string word;
    const IndexEntry* entry;
    int rank;  // lower wins: 0 declared with flag(), 1 one-word absolute alias, 2 row of a section, 3 row of a group
  };
  IndexEntry& at(std::string_view path);
  IndexEntry& below(IndexEntry& parent, std::string_view word);
  void add_component(IndexEntry& entry, const Component& component);
  void add_row(IndexEntry& parent, const Row& row);
  const std::vector<Bare>& bare_words() const;
  const IndexEntry* bare(std::string_view word, const Origin& where) const;

  std::deque<IndexEntry> entries_;
  mutable std::vector<Bare> bare_;  // sorted by word, then rank, then order of the schema; made when first asked for
};

}  // namespace redline::config
