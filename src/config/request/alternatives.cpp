#include "config/request/alternatives.h"

#include "config/request/messages.h"

namespace redline::config {

namespace {

// null and NeMo's ??? name nothing.
const Node* named(const Node& tree, const std::string& path) {
  const Node* found = tree.find_path(path);
  return found != nullptr && !found->is_null() && !found->is_missing_marker() ? found : nullptr;
}

}  // namespace

Alternatives::Alternatives(const SchemaIndex& index) {
  for (const IndexEntry& entry : index.entries()) {
    for (const Component* component : entry.components()) {
      for (const std::vector<std::string>& names : component->alternatives) {
        Choice choice;
        for (const std::string& name : names)
          choice.paths.push_back(entry.path.empty() ? name : entry.path + "." + name);
        choices_.push_back(std::move(choice));
      }
    }
  }
}

void Alternatives::replace(Node& tree, const Node& layer) {
  for (Choice& choice : choices_) {
    bool any = false;
    for (const std::string& path : choice.paths) {
      if (named(layer, path) == nullptr) continue;
      choice.named_in[path] = layer_;
      any = true;
    }
    if (!any) continue;
    for (const std::string& path : choice.paths)
      if (choice.named_in[path] != layer_) tree.remove_path(path);
  }
}

void Alternatives::check(const Node& tree) const {
  for (const Choice& choice : choices_) {
    const Node* first = nullptr;
    std::string first_path;
    for (const std::string& path : choice.paths) {
      const Node* found = named(tree, path);
      if (found == nullptr) continue;
      if (first != nullptr)
        fail_at(found->origin, "both " + first_path + " (" + first->origin.text() + ") and " + path +
                                   " are given, and only one can be used; leave one out or unset it with " + path +
                                   "=null.");
      first = found;
      first_path = path;
    }
  }
}

}  // namespace redline::config
