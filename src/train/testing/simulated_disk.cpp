// See simulated_disk.h for the model.
#include "train/testing/simulated_disk.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "core/error.h"

namespace redline::train {

namespace fs = std::filesystem;

class RecordingFile final : public WritableFile {
 public:
  RecordingFile(RecordingFileOps& ops, std::unique_ptr<WritableFile> inner, int file)
      : ops_(ops), inner_(std::move(inner)), file_(file) {}
  void write(std::span<const std::byte> bytes) override {
    inner_->write(bytes);
    ops_.log_.push_back(
        {DiskOp::Kind::Write, {}, {}, file_, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  }
  void sync() override {
    inner_->sync();
    ops_.log_.push_back({DiskOp::Kind::SyncFile, {}, {}, file_, {}});
  }
  void close() override { inner_->close(); }

 private:
  RecordingFileOps& ops_;
  std::unique_ptr<WritableFile> inner_;
  int file_;
};

std::unique_ptr<WritableFile> RecordingFileOps::create(const fs::path& path) {
  auto inner = posix_file_ops().create(path);
  log_.push_back({DiskOp::Kind::Create, inside(path), {}, next_file_, {}});
  return std::make_unique<RecordingFile>(*this, std::move(inner), next_file_++);
}

void RecordingFileOps::make_directory(const fs::path& path) {
  posix_file_ops().make_directory(path);
  log_.push_back({DiskOp::Kind::MakeDirectory, inside(path), {}, -1, {}});
}

void RecordingFileOps::rename(const fs::path& from, const fs::path& to) {
  posix_file_ops().rename(from, to);
  log_.push_back({DiskOp::Kind::Rename, inside(from), inside(to), -1, {}});
}

void RecordingFileOps::remove(const fs::path& path) {
  posix_file_ops().remove(path);
  log_.push_back({DiskOp::Kind::Unlink, inside(path), {}, -1, {}});
}

void RecordingFileOps::sync_directory(const fs::path& path) {
  posix_file_ops().sync_directory(path);
  log_.push_back({DiskOp::Kind::SyncDirectory, inside(path), {}, -1, {}});
}

namespace {

// Indices of operations in the prefix that no later sync in the prefix made safe.
std::vector<size_t> unsafe_operations(const std::vector<DiskOp>& log, size_t prefix) {
  std::vector<size_t> found;
  for (size_t i = 0; i < prefix; ++i) {
    const DiskOp& op = log[i];
    if (op.kind != DiskOp::Kind::Write && !op.changes_names()) continue;
    bool safe = false;
    for (size_t k = i + 1; k < prefix && !safe; ++k) {
      safe = op.kind == DiskOp::Kind::Write
                 ? log[k].kind == DiskOp::Kind::SyncFile && log[k].file == op.file
                 : log[k].kind == DiskOp::Kind::SyncDirectory && log[k].path == op.path.parent_path();
    }
    if (!safe) found.push_back(i);
  }
  return found;
}

struct TornShape {
  size_t kept;
  bool grown;  // the rest of the write reads as zeros
};
std::optional<TornShape> torn_shape(Fate fate) {
  switch (fate) {
    case Fate::Torn512:
      return TornShape{512, false};
    case Fate::Torn4096:
      return TornShape{4096, false};
    case Fate::Torn512Grown:
      return TornShape{512, true};
    case Fate::Torn4096Grown:
      return TornShape{4096, true};
    default:
      return std::nullopt;
  }
}

Fate fate_of(const CrashState& state, size_t index) {
  const auto found = state.fates.find(index);
  return found == state.fates.end() ? Fate::Kept : found->second;
}

// Names after the crash: path -> file, -1 for directories. Operations on what a lost one would have made do nothing.
std::map<std::string, int> names_after(const std::vector<DiskOp>& log, const CrashState& state) {
  std::map<std::string, int> names;
  auto parent_exists = [&](const fs::path& path) {
    const std::string parent = path.parent_path().string();
    return parent.empty() || parent == "." || names.contains(parent);
  };
  for (size_t i = 0; i < state.prefix; ++i) {
    const DiskOp& op = log[i];
    if (!op.changes_names() || fate_of(state, i) != Fate::Kept) continue;
    const std::string name = op.path.string();
    if (op.kind == DiskOp::Kind::MakeDirectory || op.kind == DiskOp::Kind::Create) {
      if (parent_exists(op.path)) names[name] = op.file;
    } else if (op.kind == DiskOp::Kind::Unlink) {
      names.erase(name);
    } else if (names.contains(name) && parent_exists(op.to)) {
      std::map<std::string, int> moved;
      for (auto it = names.begin(); it != names.end();) {
        const bool below = it->first == name || it->first.rfind(name + "/", 0) == 0;
        if (below) moved[op.to.string() + it->first.substr(name.size())] = it->second;
        it = below ? names.erase(it) : std::next(it);
      }
      names.insert(moved.begin(), moved.end());
    }
  }
  // A directory that is gone takes along what a lost unlink left in it; parents come before their children here.
  for (auto it = names.begin(); it != names.end();) it = parent_exists(it->first) ? std::next(it) : names.erase(it);
  return names;
}

}  // namespace

std::vector<CrashState> enumerate_crash_states(const std::vector<DiskOp>& log) {
  std::vector<CrashState> states;
  for (size_t prefix = 0; prefix <= log.size(); ++prefix) {
    const std::vector<size_t> unsafe = unsafe_operations(log, prefix);
    const std::string after = "after " + std::to_string(prefix) + " operations, ";
    auto add = [&](const std::string& what, const std::function<Fate(size_t)>& fate) {
      CrashState state{prefix, {}, after + what};
      for (size_t i : unsafe) {
        if (fate(i) != Fate::Kept) state.fates[i] = fate(i);
      }
      states.push_back(std::move(state));
    };
    auto is_write = [&](size_t i) { return log[i].kind == DiskOp::Kind::Write; };
    add("all kept", [](size_t) { return Fate::Kept; });
    add("all unsynced lost", [](size_t) { return Fate::Lost; });
    add("names kept, data lost", [&](size_t i) { return is_write(i) ? Fate::Lost : Fate::Kept; });
    add("data kept, names lost", [&](size_t i) { return is_write(i) ? Fate::Kept : Fate::Lost; });
    for (size_t one : unsafe) {
      const std::string which = "operation " + std::to_string(one);
      add(which + " lost", [&](size_t i) { return i == one ? Fate::Lost : Fate::Kept; });
      add(which + " alone kept", [&](size_t i) { return i == one ? Fate::Kept : Fate::Lost; });
      if (!is_write(one)) continue;
      for (Fate torn : {Fate::Torn512, Fate::Torn4096, Fate::Torn512Grown, Fate::Torn4096Grown}) {
        add(which + " torn", [&](size_t i) { return i == one ? torn : Fate::Kept; });
      }
    }
  }
  return states;
}

CrashedTree tree_after(const std::vector<DiskOp>& log, const CrashState& state) {
  std::map<int, std::string> keys;
  for (size_t i = 0; i < state.prefix; ++i) {
    if (log[i].kind != DiskOp::Kind::Write) continue;
    keys[log[i].file] += std::to_string(i) + ":" + std::to_string(static_cast<int>(fate_of(state, i))) + " ";
  }
  CrashedTree tree;
  for (const auto& [name, file] : names_after(log, state)) {
    if (file < 0) {
      tree.contents[name + "/"];
    } else {
      tree.contents[name] = keys[file];
    }
  }
  return tree;
}

std::string CrashedTree::signature() const {
  std::string text;
  for (const auto& [name, key] : contents) text += name + "=" + key + "\n";
  return text;
}

std::string content_of(const std::vector<DiskOp>& log, const std::string& key) {
  std::string content;
  size_t at = 0;  // where the next write goes, whether or not earlier ones survived
  std::istringstream parts(key);
  for (std::string part; parts >> part;) {
    const size_t colon = part.find(':');
    const std::string& written = log[std::stoul(part.substr(0, colon))].data;
    const auto fate = static_cast<Fate>(std::stoi(part.substr(colon + 1)));
    if (fate != Fate::Lost) {
      std::string data = written;
      if (const auto torn = torn_shape(fate)) {
        data.resize(std::min(torn->kept, data.size()));
        if (torn->grown) data.resize(written.size(), '\0');
      }
      content.resize(std::max(content.size(), at), '\0');  // a lost write before a kept one is a hole
      content.replace(at, std::string::npos, data);
    }
    at += written.size();
  }
  return content;
}

TreeBuilder::TreeBuilder(const std::vector<DiskOp>& log, fs::path pool) : log_(log), pool_(std::move(pool)) {
  fs::remove_all(pool_);
  fs::create_directories(pool_);
}

void TreeBuilder::build(const CrashedTree& tree, const fs::path& root) {
  fs::remove_all(root);
  fs::create_directories(root);
  for (const auto& [name, key] : tree.contents) {
    if (name.back() == '/') {
      fs::create_directories(root / name);
      continue;
    }
    auto [found, fresh] = files_.emplace(key, pool_ / std::to_string(files_.size()));
    if (fresh) {
      const std::string content = content_of(log_, key);
      std::ofstream(found->second, std::ios::binary)
          .write(content.data(), static_cast<std::streamsize>(content.size()));
    }
    fs::create_hard_link(found->second, root / name);
  }
}

class FailingFile final : public WritableFile {
 public:
  FailingFile(FailingFileOps& ops, std::unique_ptr<WritableFile> inner) : ops_(ops), inner_(std::move(inner)) {}
  void write(std::span<const std::byte> bytes) override {
    attempt("write", [&] { inner_->write(bytes); });
  }
  void sync() override {
    attempt("sync", [&] { inner_->sync(); });
  }
  void close() override {
    attempt("close", [&] { inner_->close(); });
  }

 private:
  template <class Operation>
  void attempt(const char* what, Operation operation) {
    if (failed_) ++ops_.reused_;
    try {
      ops_.step(what);
    } catch (...) {
      failed_ = true;
      throw;
    }
    operation();
  }
  FailingFileOps& ops_;
  std::unique_ptr<WritableFile> inner_;
  bool failed_ = false;
};

void FailingFileOps::step(const std::string& what) {
  const int64_t number = operations_++;
  if (number >= fail_from_ && number < fail_from_ + fail_count_) {
    throw DiskError("Cannot " + what + ": No space left on device; free space there.");
  }
}

std::unique_ptr<WritableFile> FailingFileOps::create(const fs::path& path) {
  step("create");
  return std::make_unique<FailingFile>(*this, inner_.create(path));
}
void FailingFileOps::make_directory(const fs::path& path) { step("make_directory"), inner_.make_directory(path); }
void FailingFileOps::rename(const fs::path& from, const fs::path& to) { step("rename"), inner_.rename(from, to); }
void FailingFileOps::remove(const fs::path& path) { step("remove"), inner_.remove(path); }
void FailingFileOps::sync_directory(const fs::path& path) { step("sync_directory"), inner_.sync_directory(path); }

}  // namespace redline::train
