// See memory_file_ops.h for the model of a crash.
#include "core/testing/memory_file_ops.h"

#include "core/error.h"
#include "core/strings.h"

namespace redline {

namespace {

std::string plain_path(const std::filesystem::path& path) { return path.lexically_normal().string(); }

bool is_inside(const std::string& name, const std::string& directory) {
  return directory == "." ? name.find('/') == std::string::npos || name.find('/') + 1 == name.size()
                          : starts_with(name, directory + "/");
}

}  // namespace

class MemoryFile final : public WritableFile {
 public:
  MemoryFile(MemoryFileOps& ops, std::string name, std::shared_ptr<MemoryFileOps::Inode> inode)
      : ops_(ops), name_(std::move(name)), inode_(std::move(inode)) {}

  // Each write counts as one operation; a failing one leaves the first half behind, as a full disk does.
  void write(std::span<const std::byte> bytes) override {
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    try {
      ops_.step("write " + name_ + " " + std::to_string(bytes.size()));
    } catch (...) {
      inode_->data += text.substr(0, text.size() / 2);
      throw;
    }
    inode_->data += text;
  }
  void sync() override {
    ops_.step("sync " + name_);
    inode_->synced = inode_->data.size();
  }
  void close() override { ops_.step("close " + name_); }

 private:
  MemoryFileOps& ops_;
  std::string name_;
  std::shared_ptr<MemoryFileOps::Inode> inode_;
};

void MemoryFileOps::step(std::string operation) {
  const size_t number = operations_.size();
  operations_.push_back(std::move(operation));
  if (number == fail_at_ || (fail_forever_ && number > fail_at_)) {
    throw DiskError("Cannot " + operations_.back() +
                    ": no space left on device; free space there or choose another directory.");
  }
}

std::unique_ptr<WritableFile> MemoryFileOps::create(const std::filesystem::path& path) {
  const std::string name = plain_path(path);
  step("create " + name);
  auto inode = std::make_shared<Inode>();
  names_[name] = inode;
  return std::make_unique<MemoryFile>(*this, name, inode);
}

void MemoryFileOps::make_directory(const std::filesystem::path& path) {
  step("make_directory " + plain_path(path));
  std::filesystem::path prefix;
  for (const auto& part : path.lexically_normal()) {
    prefix /= part;
    if (!prefix.empty() && prefix != "/") names_[plain_path(prefix) + "/"] = nullptr;
  }
}

void MemoryFileOps::rename(const std::filesystem::path& from, const std::filesystem::path& to) {
  const std::string source = plain_path(from), target = plain_path(to);
  step("rename " + source + " -> " + target);
  Names moved;
  for (auto it = names_.begin(); it != names_.end();) {
    const bool itself = it->first == source;
    if (!itself && !starts_with(it->first, source + "/")) {
      ++it;
      continue;
    }
    moved[target + it->first.substr(source.size())] = it->second;
    it = names_.erase(it);
  }
  if (moved.empty())
    throw DiskError("Cannot put in place '" + target + "': '" + source + "' does not exist; check the path.");
  for (auto& [name, inode] : moved) names_[name] = inode;
}

void MemoryFileOps::remove(const std::filesystem::path& path) {
  const std::string name = plain_path(path);
  step("remove " + name);
  for (const auto& [other, inode] : names_)
    if (starts_with(other, name + "/") && other != name + "/")
      throw DiskError("Cannot remove '" + name + "': Directory not empty.");
  names_.erase(name);
  names_.erase(name + "/");
}

// Makes the names inside durable: a directory holds names, not data.
void MemoryFileOps::sync_directory(const std::filesystem::path& path) {
  const std::string directory = path.empty() ? "." : plain_path(path);
  step("sync_directory " + directory);
  std::erase_if(durable_names_, [&](const auto& entry) { return is_inside(entry.first, directory); });
  for (const auto& [name, inode] : names_) {
    if (is_inside(name, directory)) durable_names_[name] = inode;
  }
  if (names_.contains(directory + "/")) durable_names_[directory + "/"] = nullptr;
}

MemoryFileOps::Files MemoryFileOps::view(Crash crash) const {
  Files files;
  for (const auto& [name, inode] : crash == Crash::LoseUnsynced ? durable_names_ : names_) {
    std::string& data = files[name];
    if (inode == nullptr) continue;
    const size_t unsynced = inode->data.size() - inode->synced;
    const size_t kept = crash == Crash::KeepAll ? unsynced : crash == Crash::TearData ? unsynced / 2 : 0;
    data = inode->data.substr(0, inode->synced + kept);
  }
  return files;
}

std::optional<std::string> MemoryFileOps::content(const std::filesystem::path& path) const {
  const auto found = names_.find(plain_path(path));
  if (found == names_.end() || found->second == nullptr) return std::nullopt;
  return found->second->data;
}

void MemoryFileOps::for_every_crash(const std::function<void(MemoryFileOps&)>& prepare,
                                    const std::function<void(MemoryFileOps&)>& work,
                                    const std::function<void(const Files&)>& judge) {
  for (size_t cut = 0;; ++cut) {
    MemoryFileOps disk;
    if (prepare) prepare(disk);
    const size_t begin = disk.operations().size();
    disk.fail_at(begin + cut, true);
    try {
      work(disk);
    } catch (const DiskError&) {  // the cut; the states below are what counts
    }
    for (const Crash crash : kCrashes) judge(disk.after_crash(crash));
    if (disk.operations().size() <= begin + cut) return;
  }
}

}  // namespace redline
