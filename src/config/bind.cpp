// Walks the tables and the request side by side: fills the objects, or reads them again after they were resolved.
#include "config/job.h"
#include "config/request/canonical.h"
#include "config/request/messages.h"
#include "config/schema_index.h"

namespace redline::config {

namespace {

const Node& null_node() {
  static const Node node;
  return node;
}

std::string below_path(const std::string& parent, const std::string& word) {
  return parent.empty() ? word : parent + "." + word;
}

}  // namespace

class Binder {
 public:
  // Fills objects from `request`.
  static Resolved bind(const Node& request, Schema& schema) {
    Binder binder;
    const SchemaIndex index(schema);
    Node tree = canonical(request, index, {nullptr, &binder.resolved_.ignored_});
    convert_aliases(tree);
    binder.index_ = &index;
    binder.resolved_.values_.reserve(index.entries().size());
    for (const Section& section : schema.sections()) {
      const Node* own = section.path.empty() ? &tree : tree.find_path(section.path);
      const bool is_word =
          own != nullptr && own->is_scalar() && index.find(section.path)->row != nullptr;  // another room's row
      const bool absent = own == nullptr || own->is_null() || own->is_missing_marker() || is_word;
      if (section.optional && absent) continue;
      if (!absent && !own->is_map())
        fail_at(own->origin, section.path + " must be a map of keys, found " + shown(*own) + ".");
      binder.enter(section);
      binder.fill(*section.component, section.object, section.path, absent ? null_node() : *own);
    }
    return std::move(binder.resolved_);
  }

  // Reads objects; what differs from `before` was resolved since.
  static Resolved read(const Schema& schema, const Resolved& before) {
    Binder binder;
    binder.before_ = &before;
    binder.resolved_.ignored_ = before.ignored_;
    binder.resolved_.values_.reserve(before.values_.size());
    for (const Section& section : schema.sections()) {
      if (section.optional && !before.has_section(section.path)) continue;
      binder.enter(section);
      binder.look(*section.component, section.object, section.path);
    }
    return std::move(binder.resolved_);
  }

 private:
  void enter(const Section& section) {
    resolved_.components_.push_back(section.component);
    resolved_.present_.push_back(section.path);
  }

  void fill(const Component& component, void* object, const std::string& path, const Node& map) {
    for (const auto& row : component.rows) {
      ResolvedValue value;
      value.path = below_path(path, row->name);
      value.row = row.get();
      const Node* given = map.find(row->name);
      if (given != nullptr && given->is_map() && is_section(value.path)) given = nullptr;
      if (given != nullptr) {
        value.origin = given->origin;
        if (given->is_missing_marker()) {
          value.value = *given;
          value.held = std::make_shared<const Node>(row->get(object));
        } else {
          row->set(object, *given, value.path);
        }
      }
      if (value.value.is_null()) value.value = row->get(object);
      resolved_.values_.push_back(std::move(value));
    }
    for (const Component::Group& group : component.groups) {
      const Node* given = map.find(group.name);
      fill_group(group, object, below_path(path, group.name), given);
    }
  }

  // A name may be a word in one room's table and a section of another: a map belongs to the section.
  bool is_section(const std::string& path) const {
    const IndexEntry* entry = index_->find(path);
    return entry != nullptr && !entry->sections.empty();
  }

  void fill_group(const Component::Group& group, void* parent, const std::string& path, const Node* given) {
    const bool wanted = given != nullptr && given->is_map();
    if (given != nullptr && !given->is_map() && !given->is_null() && !given->is_missing_marker()) {
      fail_at(given->origin, path + " must be a map of keys, found " + shown(*given) + ".");
    }
    if (group.create && wanted) group.create(parent);
    if (group.clear && given != nullptr && given->is_null()) group.clear(parent);
    void* object = group.object(parent);
    if (object == nullptr) {
      resolved_.values_.push_back({path, Node(), given != nullptr ? given->origin : Origin{}, nullptr, nullptr});
      return;
    }
    resolved_.present_.push_back(path);
    fill(*group.component, object, path, wanted ? *given : null_node());
  }

  void look(const Component& component, void* object, const std::string& path) {
    for (const auto& row : component.rows) {
      note({below_path(path, row->name), row->get(object), Origin{}, row.get(), nullptr});
    }
    for (const Component::Group& group : component.groups) {
      const std::string own = below_path(path, group.name);
      void* inner = group.object(object);
      if (inner == nullptr) {
        note({own, Node(), Origin{}, nullptr, nullptr});
        continue;
      }
      resolved_.present_.push_back(own);
      look(*group.component, inner, own);
    }
  }

  // The same objects give the same order, so the value is nearly always the next one.
  const ResolvedValue* find_before(const std::string& path) {
    const auto& values = before_->values_;
    if (next_ >= values.size() || values[next_].path != path) {
      const ResolvedValue* found = before_->find(path);
      if (found == nullptr) return nullptr;
      next_ = static_cast<size_t>(found - values.data());
    }
    return &values[next_++];
  }

  void note(ResolvedValue now) {
    const ResolvedValue* was = find_before(now.path);
    if (was != nullptr && was->row == now.row && (was->held ? *was->held : was->value) == now.value) {
      resolved_.values_.push_back(*was);
      return;
    }
    now.origin.kind = OriginKind::Resolved;
    if (was != nullptr) now.origin.source = was->origin.text();
    resolved_.values_.push_back(std::move(now));
  }

  Resolved resolved_;
  const SchemaIndex* index_ = nullptr;
  const Resolved* before_ = nullptr;
  size_t next_ = 0;
};

Resolved bind(const Node& request, Schema& schema) { return Binder::bind(request, schema); }

Resolved snapshot(const Schema& schema, const Resolved& bound) { return Binder::read(schema, bound); }

}  // namespace redline::config
