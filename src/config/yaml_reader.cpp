// YAML text to Node, through yaml-cpp's events: the tree is built while the parser runs, so the limits against hostile
// files (size, nodes, depth, anchors, tags) stop it before it has built anything large.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <unordered_set>

#include "config/job.h"
#include "config/request/limits.h"
#include "config/request/messages.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"

namespace redline::config {

namespace {

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& name) { place_.kind = OriginKind::File, place_.source = name; }

  Node take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Origin where = at(mark);
    refuse_anchor(anchor, where);
    if (wants_key()) fail_at(where, "a key is missing in front of the ':'; write the key's name there.");
    add(Node(), where);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_anchor(1, at(mark)); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    const Origin where = at(mark);
    refuse_anchor(anchor, where);
    refuse_tag(tag, where);
    if (wants_key()) {
      take_key(value, where);
    } else {
      add(Node::scalar(value, tag == "!"), where);
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::list(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::map(), mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    Node node;
    std::string key;
    Origin key_place;
    bool has_key = false;
    std::unordered_set<std::string> keys;
  };

  Origin at(const YAML::Mark& mark) const {
    Origin where = place_;
    where.line = mark.line + 1;
    where.column = mark.column + 1;
    return where;
  }
  bool wants_key() const { return !frames_.empty() && frames_.back().node.is_map() && !frames_.back().has_key; }

  static void refuse_anchor(YAML::anchor_t anchor, const Origin& where) {
    if (anchor != 0)
      fail_at(where, "YAML anchors and aliases (&name, *name) are not read; write ${path.to.key} instead.");
  }
  static void refuse_tag(const std::string& tag, const Origin& where) {
    if (!tag.empty() && tag != "?" && tag != "!")
      fail_at(where, "the YAML tag " + shown(tag) + " is not read; remove it.");
  }
  void count_node(const Origin& where) {
    if (++count_ > kMaxNodes) {
      fail_at(where,
              "the file has more than " + std::to_string(kMaxNodes) + " values; check that it is the file you meant.");
    }
  }

  void take_key(const std::string& key, const Origin& where) {
    Frame& frame = frames_.back();
    if (!frame.keys.insert(key).second) {
      const Node* before = frame.node.find(key);
      fail_at(where, "the key " + shown(key) + " is given twice, first on line " +
                         std::to_string(before->origin.key().line) + "; remove one of them.");
    }
    frame.key = key;
    frame.key_place = where;
    frame.has_key = true;
  }

  void add(Node node, Origin where) {
    count_node(where);
    if (frames_.empty()) {
      node.origin = where;
      root_ = std::move(node);
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.is_list()) {
      node.origin = where;
      frame.node.items().push_back(std::move(node));
      return;
    }
    where.key_line = frame.key_place.line;
    where.key_column = frame.key_place.column;
    node.origin = std::move(where);
    frame.node.entries().emplace_back(std::move(frame.key), std::move(node));
    frame.has_key = false;
  }

  void open(Node node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Origin where = at(mark);
    refuse_anchor(anchor, where);
    refuse_tag(tag, where);
    if (wants_key())
      fail_at(where, "a key must be one word, found a list or map; check the brackets and the indentation.");
    if (frames_.size() >= kMaxDepth) {
      fail_at(where, "values are nested more than " + std::to_string(kMaxDepth) +
                         " deep; check that it is the file you meant.");
    }
    node.origin = std::move(where);
    frames_.push_back({});
    frames_.back().node = std::move(node);
  }
  void close() {
    Node node = std::move(frames_.back().node);
    frames_.pop_back();
    Origin where = node.origin;
    add(std::move(node), std::move(where));
  }

  Origin place_;
  std::vector<Frame> frames_;
  Node root_;
  size_t count_ = 0;
};

// Text is UTF-8 without control characters; anything else is some other kind of file.
void require_text(std::string_view text, const std::string& name) {
  Origin where{OriginKind::File, name, 1, 1, "", 0, 0};
  for (size_t i = 0; i < text.size();) {
    const size_t size = utf8_size(text.substr(i));
    const auto byte = static_cast<unsigned char>(text[i]);
    if (size == 0 || (byte < 0x20 && byte != '\n' && byte != '\t' && byte != '\r') || byte == 0x7f) {
      fail_at(where, "this is not a text file in UTF-8; check that it is the file you meant.");
    }
    i += size;
    ++where.column;
    if (byte == '\n') ++where.line, where.column = 1;
  }
}

// Another recipe in the folder with nearly the same name.
std::string similar_file(const std::filesystem::path& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  for (std::filesystem::directory_iterator it(folder, ignored), end; !ignored && it != end && names.size() < 1000;
       it.increment(ignored)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".yaml" || extension == ".yml") names.push_back(it->path().filename().string());
  }
  std::string wanted = path.filename().string();
  if (!path.has_extension()) wanted += ".yaml";
  const auto nearest = did_you_mean(wanted, names);
  return nearest ? "; did you mean '" + (path.parent_path() / *nearest).string() + "'?" : "; check the path.";
}

}  // namespace

Node read_yaml_text(std::string_view text, const std::string& name) {
  if (starts_with(text, "\xef\xbb\xbf")) text.remove_prefix(3);
  const Origin top{OriginKind::File, name, 1, 1, "", 0, 0};
  if (text.size() > kMaxFileBytes) {
    fail_at(top, "the file is larger than the limit of " + format_bytes(kMaxFileBytes) +
                     "; check that it is the file you meant.");
  }
  require_text(text, name);
  TreeBuilder builder(name);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    Node root = builder.take();
    TreeBuilder second(name);
    if (parser.HandleNextDocument(second)) {
      fail_at(top, "the file holds more than one YAML document; keep one (remove the '---' in between).");
    }
    if (root.is_null()) {
      root = Node::map();
      root.origin = top;
    }
    return root;
  } catch (const YAML::Exception& error) {
    const Origin where{
        OriginKind::File, name, std::max(error.mark.line, 0) + 1, std::max(error.mark.column, 0) + 1, "", 0, 0};
    fail_at(where,
            "this is not valid YAML (" + error.msg + "); check indentation, quotes and brackets around this place.");
  }
}

Node read_yaml_file(const std::filesystem::path& path) {
  const std::string name = path.string();
  if (path.extension() == ".py") {
    throw ConfigError(printable("'" + name +
                                "' is a Python config, which would have to be run to be read; use a YAML recipe "
                                "instead, such as recipes/" +
                                path.stem().string() + ".yaml."));
  }
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) && !ignored) {
    throw ConfigError(printable("There is no file '" + name + "'" + similar_file(path)));
  }
  std::string text;
  try {
    text = read_file(path, kMaxFileBytes);
  } catch (const DiskError& error) {
    throw ConfigError(error.what());
  }
  Node root = read_yaml_text(text, name);
  if (!root.is_map()) {
    fail_at(root.origin, "a recipe is a map of keys (trainer:, model:, ...), found " + shown(root) +
                             "; check that it is the file you meant.");
  }
  return root;
}

}  // namespace redline::config
