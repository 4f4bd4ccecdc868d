#include "config/request/overrides.h"

#include "config/job.h"
#include "config/request/messages.h"
#include "core/strings.h"

namespace redline::config {

namespace {

void set_origins(Node& node, const Origin& origin) {
  node.origin = origin;
  for (Node& item : node.items()) set_origins(item, origin);
  for (auto& [key, value] : node.entries()) set_origins(value, origin);
}

class OverrideParser {
 public:
  OverrideParser(const std::vector<std::string>& words, const SchemaIndex& index, const OverrideOptions& options)
      : words_(words), index_(index), options_(options) {}

  std::vector<Override> run() {
    for (next_ = 0; next_ < words_.size();) {
      std::string word = words_[next_++];
      require_utf8(word);
      if (word == "--options" || word == "--cfg-options") continue;  // the words after it are key=value anyway
      for (const char* prefix : {"--options=", "--cfg-options="}) {
        if (starts_with(word, prefix)) word.erase(0, std::string_view(prefix).size());
      }
      if (starts_with(word, "--")) {
        read_flag(word);
      } else if (starts_with(word, "~")) {
        read_removal(word);
      } else {
        read_assignment(word);
      }
    }
    return std::move(found_);
  }

 private:
  Origin origin_of(const std::string& typed) const {
    Origin origin;
    origin.kind = options_.kind;
    origin.source = options_.kind == OriginKind::Flag ? typed.substr(0, 80) : options_.source;
    return origin;
  }
  void require_utf8(const std::string& word) const {
    for (std::string_view rest = word; !rest.empty();) {
      const size_t size = utf8_size(rest);
      if (size == 0) fail_at(origin_of(word), "this word is not UTF-8 text; check the terminal's encoding.");
      rest.remove_prefix(size);
    }
  }

  // Finds what the name means; null when it is a variable of the file.
  Override begin(const std::string& name, const Origin& origin) const {
    Override one;
    one.origin = origin;
    one.entry = index_.find_flag(name, &one.rest, origin);
    one.path = one.entry != nullptr ? one.entry->path : name;
    if (one.entry == nullptr && !(options_.is_variable && options_.is_variable(name)))
      index_.unknown_flag(name, origin);
    return one;
  }

  void read_flag(const std::string& word) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    Origin origin = origin_of(word);
    if (name.empty()) fail_at(origin, "a flag has a name, as in --trainer.precision 16-mixed.");
    if (equals == std::string::npos && read_negation(name, origin)) return;
    Override one = begin(name, origin);
    if (equals != std::string::npos) {
      one.value = override_value(word.substr(equals + 1), origin);
    } else if (one.entry != nullptr && one.rest.empty() && one.entry->is_boolean()) {
      one.value = override_value("true", origin);
    } else if (next_ < words_.size() && !starts_with(words_[next_], "--") &&
               !(may_stand_alone(one) && is_assignment(words_[next_]))) {
      const std::string& value = words_[next_++];
      require_utf8(value);
      one.origin = origin_of(word + " " + value);
      one.value = override_value(value, one.origin);
    } else if (may_stand_alone(one)) {
      one.value = override_value("true", origin);  // its conversion says what that means
    } else {
      fail_at(origin, "the flag needs a value" + expectation(one) + "; write " + word + "=VALUE.");
    }
    found_.push_back(std::move(one));
  }

  // An alias with a conversion may be a boolean in disguise that was not declared as one.
  static bool may_stand_alone(const Override& one) {
    return one.entry != nullptr && one.entry->alias != nullptr && one.entry->alias->convert;
  }
  bool is_assignment(const std::string& word) const {
    const size_t begin_of_name = word.find_first_not_of("+~");
    const size_t equals = word.find('=');
    if (begin_of_name == std::string::npos || (equals == std::string::npos && begin_of_name == 0)) return false;
    std::string rest;
    return index_.find(word.substr(begin_of_name, equals - begin_of_name), &rest) != nullptr;
  }

  static std::string expectation(const Override& one) {
    const Row* row = one.entry == nullptr           ? nullptr
                     : one.entry->target != nullptr ? one.entry->target->row
                                                    : one.entry->row;
    return row == nullptr || one.entry->alias != nullptr ? "" : ", " + expected_text(*row);
  }

  bool read_negation(const std::string& name, const Origin& origin) {
    if (!starts_with(name, "no-") && !starts_with(name, "no_")) return false;
    std::string rest;
    if (index_.find_flag(name, &rest, origin) != nullptr) return false;  // an option that is called so
    const IndexEntry* entry = index_.find_flag(name.substr(3), &rest, origin);
    if (entry == nullptr || !rest.empty()) return false;
    if (!entry->is_boolean()) {
      fail_at(origin,
              entry->path + " is not a switch that is on or off; give it a value, as in " + entry->path + "=VALUE.");
    }
    Override one;
    one.entry = entry;
    one.path = entry->path;
    one.origin = origin;
    one.value = override_value("false", origin);
    found_.push_back(std::move(one));
    return true;
  }

  void read_removal(const std::string& word) {
    const size_t equals = word.find('=');
    const Origin origin = origin_of(word);
    Override one = begin(word.substr(1, equals == std::string::npos ? equals : equals - 1), origin);
    one.remove = true;
    if (equals != std::string::npos) one.value = override_value(word.substr(equals + 1), origin);
    found_.push_back(std::move(one));
  }

  void read_assignment(const std::string& word) {
    const size_t equals = word.find('=');
    const Origin origin = origin_of(word);
    if (equals == std::string::npos || equals == 0) {
      fail_at(origin,
              shown(word) + " is neither key=value nor a flag; if it is a value, write it behind its flag's '='.");
    }
    size_t begin_of_name = 0;
    while (begin_of_name < 2 && word[begin_of_name] == '+') ++begin_of_name;
    Override one = begin(word.substr(begin_of_name, equals - begin_of_name), origin);
    one.value = override_value(word.substr(equals + 1), origin);
    found_.push_back(std::move(one));
  }

  const std::vector<std::string>& words_;
  const SchemaIndex& index_;
  const OverrideOptions& options_;
  size_t next_ = 0;
  std::vector<Override> found_;
};

}  // namespace

Node override_value(const std::string& text, const Origin& origin) {
  const std::string clean = trim(text);
  Node value;
  if (clean == "null" || clean == "~") {
    value = Node();
  } else if (clean.empty()) {
    value = Node::scalar("", true);
  } else if (std::string_view("[{\"'").find(clean[0]) != std::string_view::npos) {
    value = read_yaml_text(clean, origin.text());
  } else {
    value = Node::scalar(clean);
  }
  set_origins(value, origin);
  return value;
}

std::vector<Override> parse_overrides(const std::vector<std::string>& words, const SchemaIndex& index,
                                      const OverrideOptions& options) {
  return OverrideParser(words, index, options).run();
}

}  // namespace redline::config
