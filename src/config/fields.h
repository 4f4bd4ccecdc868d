// The field table: each component declares its options once, as rows, and everything else is derived from them: YAML,
// flags, validation, "did you mean", docs/options.md, the JSON Schema, completion, the resolved dump and the tuner's
// search space.
//
// A component is a struct with defaults as member initialisers and a table:
//   struct LoaderConfig {
//     config::Auto<int> num_workers;
//     static config::Table<LoaderConfig> fields();
//   };
// (docs/new_option.md shows a compiled example.) Members may be bool, int, int64_t, double, std::string,
// std::vector<T>, std::optional<T> (YAML null), Auto<T> (the word `auto` until resolved), and Node (a raw subtree the
// component reads itself). A number whose unit is a time or a size also takes a text with a unit: "90s", "1h30m",
// "512MiB".
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "config/node.h"
#include "core/check.h"

namespace redline::config {

// What a switch changes besides speed and memory (design: "switch").
enum class Effect { Nothing, Numerics, Order, Optimisation, Model };
const char* effect_name(Effect effect);

// What a number counts in. When a step gets more samples, what counts steps or batches is divided, so that it still
// means the same samples (tune/search/companions.h).
enum class Counts { Nothing, Steps, Batches, Samples, Epochs, Seconds };
const char* counts_name(Counts counts);  // "", "steps", "batches", ...

// Whether a text names files: nothing, one path, or several as data sets name them ("a,b", ranges in braces). A
// relative one is of the file that says it, or of the current folder on the command line (request/paths.h).
enum class Names { Nothing, Path, Paths };

// A value that may be left to the program. `auto` exists only in the request: resolve() must set every Auto before it
// is read.
template <class T>
class Auto {
 public:
  Auto() = default;
  Auto(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, so that defaults read naturally
  bool is_auto() const { return !value_.has_value(); }
  const T& value() const { return value_.value(); }
  T value_or(T fallback) const { return value_.value_or(std::move(fallback)); }
  void set(T value) { value_ = std::move(value); }

 private:
  std::optional<T> value_;
};

// Another name for a field. `path` is relative to the component ("workers_per_gpu") or, with a leading dot, absolute
// (".runner.max_iters"); a one-word absolute alias is also a bare flag (".use_amp" is `--use_amp`).
struct Alias {
  std::string path;
  // Turns the alias's value into the field's; identity when empty. May throw ConfigError.
  std::function<Node(const Node&)> convert;
  std::string note;      // printed in docs/options.md, e.g. "counts micro-iterations"
  bool boolean = false;  // with `convert`: the alias itself is true or false, so the flag takes no word (`--use_amp`)
};

struct Row {
  std::string name;
  std::string sentence;
  // "bool", "int", "number", "string", "node"; "list of int", "list of list of number"; "auto|int" and "null|number"
  // for Auto and optional.
  std::string type;
  std::string unit;
  std::optional<double> min, max;
  bool min_open = false, max_open = false;
  std::vector<std::string> choices;
  Effect effect = Effect::Nothing;
  bool is_switch = false;  // may change speed or memory; tunable implies it
  bool tunable = false;
  std::vector<std::string> tried;  // what a tuner moves it to; none: its other choices, or what its rule finds
  std::string rule;                // of doctor/rules, which finds and predicts its candidates; none: each is raced
  Counts counts = Counts::Nothing;
  bool cadence = false;   // of what is counted only how often something is looked at or written: may be rounded
  bool same_run = false;  // a resumed run may change it and is still the same run
  Names names = Names::Nothing;
  std::vector<Alias> aliases;
  // Bare flag that means this row even when other sections have a row of the same name ("batch_size" is
  // `--batch_size`).
  std::string flag;
  // `path` is the dotted name for messages. Throws ConfigError with the value's place.
  std::function<void(void* object, const Node& value, const std::string& path)> set;
  std::function<Node(const void* object)> get;
};

// Chained after Table::add to describe the row.
class RowBuilder {
 public:
  explicit RowBuilder(Row* row) : row_(row) {}
  RowBuilder& unit(std::string text) {
    row_->unit = std::move(text);
    return *this;
  }
  RowBuilder& range(double min, double max) {
    row_->min = min;
    row_->max = max;
    return *this;
  }
  RowBuilder& at_least(double min) {
    row_->min = min;
    return *this;
  }
  RowBuilder& above(double min) {
    row_->min = min;
    row_->min_open = true;
    return *this;
  }
  RowBuilder& at_most(double max) {
    row_->max = max;
    return *this;
  }
  RowBuilder& below(double max) {
    row_->max = max;
    row_->max_open = true;
    return *this;
  }
  RowBuilder& choices(std::vector<std::string> words) {
    row_->choices = std::move(words);
    return *this;
  }
  RowBuilder& effect(Effect effect) {
    row_->effect = effect;
    row_->is_switch = true;
    return *this;
  }
  // A tuner may move it to each of `values`; without them to its other choices, a boolean the other way round.
  RowBuilder& tunable(std::vector<std::string> values = {}) {
    row_->tunable = row_->is_switch = true;
    row_->tried = std::move(values);
    return *this;
  }
  // A tuner may move it as a rule of doctor/rules says, which chooses from `values` where there are any.
  RowBuilder& tuned_by(std::string rule, std::vector<std::string> values = {}) {
    row_->rule = std::move(rule);
    return tunable(std::move(values));
  }
  RowBuilder& counts(Counts what) {
    row_->counts = what;
    if (row_->unit.empty()) row_->unit = counts_name(what);
    return *this;
  }
  RowBuilder& cadence(Counts what) {
    row_->cadence = true;
    return counts(what);
  }
  RowBuilder& same_run() {
    row_->same_run = true;
    return *this;
  }
  RowBuilder& path() {
    row_->names = Names::Path;
    return *this;
  }
  RowBuilder& paths() {
    row_->names = Names::Paths;
    return *this;
  }
  RowBuilder& alias(std::string path, std::function<Node(const Node&)> convert = {}, std::string note = {}) {
    row_->aliases.push_back({std::move(path), std::move(convert), std::move(note), false});
    return *this;
  }
  // An alias that is true or false whatever the field is: `use_amp: true` for `precision: 16-mixed`.
  RowBuilder& bool_alias(std::string path, std::function<Node(const Node&)> convert, std::string note = {}) {
    row_->aliases.push_back({std::move(path), std::move(convert), std::move(note), true});
    return *this;
  }
  RowBuilder& flag(std::string word) {
    row_->flag = std::move(word);
    return *this;
  }

 private:
  Row* row_;
};

// Rows of one component without its C++ type; nested components are groups.
struct Component {
  struct Group {
    std::string name;
    std::string sentence;
    std::shared_ptr<const Component> component;
    std::function<void*(void* parent)> object;
    // Optional groups (std::optional<T> members) exist only when the YAML has them; null clears them.
    std::function<void(void*parent)> create, clear;
    std::function<bool(const void* parent)> exists;
  };
  std::string sentence;  // what the component is, for the docs
  std::vector<std::unique_ptr<Row>> rows;
  std::vector<Group> groups;
  // Accepted `_target_` values (last dotted word is enough). A row named "_target_", if there is one, receives the
  // match.
  std::vector<std::string> targets;
  // Each a list of rows or groups of which a job gives one (config/request/alternatives.h).
  std::vector<std::vector<std::string>> alternatives;
  std::string shorthand;  // the row that a scalar in place of the map sets: `strategy: ddp` for `strategy: {name: ddp}`
  std::function<std::shared_ptr<void>()> make;  // an object with the defaults
  // Keys that are read and ignored because they mean nothing here (with the reason, shown in the docs); only for keys
  // at the stated value: anything else must be implemented or refused by name.
  struct Accepted {
    std::string key;
    std::vector<std::string> values;  // texts that are fine; empty = any
    std::string reason;
  };
  std::vector<Accepted> accepted;
};

namespace detail {
template <class M>
void set_member(M& member, const Node& value, const Row& row, const std::string& path);
template <class M>
Node get_member(const M& member);
template <class M>
std::string type_name();
}  // namespace detail

template <class T>
class Table {
 public:
  Table() : component_(std::make_shared<Component>()) {
    component_->make = [] { return std::static_pointer_cast<void>(std::make_shared<T>()); };
  }

  // A member of T or of a struct it derives from.
  template <class M, class B>
  RowBuilder add(std::string name, M B::*member, std::string sentence) {
    static_assert(std::is_base_of_v<B, T>);
    require_new(name);
    auto row = std::make_unique<Row>();
    Row* raw = row.get();
    row->name = std::move(name);
    row->sentence = std::move(sentence);
    row->type = detail::type_name<M>();
    row->set = [member, raw](void* object, const Node& value, const std::string& path) {
      detail::set_member(static_cast<T*>(object)->*member, value, *raw, path);
    };
    row->get = [member](const void* object) { return detail::get_member(static_cast<const T*>(object)->*member); };
    component_->rows.push_back(std::move(row));
    return RowBuilder(raw);
  }

  // A nested component with a table of its own.
  template <class G, class B>
  Table& group(std::string name, G B::*member, std::string sentence = {}) {
    require_new(name);
    Component::Group group;
    group.name = std::move(name);
    group.sentence = std::move(sentence);
    group.component = G::fields().component();
    group.object = [member](void* parent) -> void* { return &(static_cast<T*>(parent)->*member); };
    component_->groups.push_back(std::move(group));
    return *this;
  }
  template <class G, class B>
  Table& group(std::string name, std::optional<G> B::*member, std::string sentence = {}) {
    static_assert(std::is_base_of_v<B, T>);
    require_new(name);
    Component::Group group;
    group.name = std::move(name);
    group.sentence = std::move(sentence);
    group.component = G::fields().component();
    group.object = [member](void* parent) -> void* {
      auto& slot = static_cast<T*>(parent)->*member;
      return slot ? &*slot : nullptr;
    };
    group.create = [member](void* parent) {
      auto& slot = static_cast<T*>(parent)->*member;
      if (!slot) slot.emplace();
    };
    group.clear = [member](void* parent) { (static_cast<T*>(parent)->*member).reset(); };
    group.exists = [member](const void* parent) { return (static_cast<const T*>(parent)->*member).has_value(); };
    component_->groups.push_back(std::move(group));
    return *this;
  }

  Table& about(std::string sentence) {
    component_->sentence = std::move(sentence);
    return *this;
  }
  Table& shorthand(std::string row) {
    component_->shorthand = std::move(row);
    return *this;
  }
  // Of these rows or groups a job gives one; a later layer's choice replaces an earlier one's.
  Table& one_of(std::vector<std::string> names) {
    component_->alternatives.push_back(std::move(names));
    return *this;
  }
  // None of its rows is the tuner's to move, e.g. of a validation's data.
  Table& not_tuned() {
    for (const auto& row : component_->rows) row->tunable = false;
    return *this;
  }
  Table& target(std::string name) {
    component_->targets.push_back(std::move(name));
    return *this;
  }
  Table& accept(std::string key, std::vector<std::string> values, std::string reason) {
    component_->accepted.push_back({std::move(key), std::move(values), std::move(reason)});
    return *this;
  }
  std::shared_ptr<const Component> component() const { return component_; }

 private:
  void require_new(const std::string& name) const {
    for (const auto& row : component_->rows) REDLINE_CHECK(row->name != name, "a component declares each option once");
    for (const auto& group : component_->groups)
      REDLINE_CHECK(group.name != name, "a component declares each option once");
  }
  std::shared_ptr<Component> component_;
};

}  // namespace redline::config

#include "config/detail/members.h"  // set_member, get_member, type_name for the supported member types
