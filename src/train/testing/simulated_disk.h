// Test support: records the operations of real saves, and rebuilds every directory that a crash could have left behind.
//
// The model promises only what POSIX does. Data is safe once its file was synced; a create, rename or unlink is safe
// once the directory was synced; until then each may be lost or kept on its own, in any combination we enumerate. A
// rename may reach the disk before the data it names. Single writes may be torn at 512 and 4096 bytes, with and without
// the size having grown already.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/file_ops.h"

namespace redline::train {

struct DiskOp {
  enum class Kind { MakeDirectory, Create, Write, SyncFile, Rename, Unlink, SyncDirectory } kind;
  std::filesystem::path path, to;  // relative to the recorded root
  int file = -1;                   // identity of the file that Create made; Write and SyncFile refer to it
  std::string data;

  bool changes_names() const {
    return kind == Kind::MakeDirectory || kind == Kind::Create || kind == Kind::Rename || kind == Kind::Unlink;
  }
};

// Passes everything on to the real disk below `root` and keeps the log.
class RecordingFileOps final : public FileOps {
 public:
  explicit RecordingFileOps(std::filesystem::path root) : root_(std::move(root)) {}
  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  void make_directory(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;

  const std::vector<DiskOp>& log() const { return log_; }

 private:
  friend class RecordingFile;
  std::filesystem::path inside(const std::filesystem::path& path) const {
    const std::filesystem::path relative = path.lexically_relative(root_);
    return relative == "." ? std::filesystem::path() : relative;
  }
  std::filesystem::path root_;
  std::vector<DiskOp> log_;
  int next_file_ = 0;
};

// What happens to one operation that no sync has made safe.
enum class Fate : uint8_t { Kept, Lost, Torn512, Torn4096, Torn512Grown, Torn4096Grown };

struct CrashState {
  size_t prefix = 0;             // operations issued before the crash
  std::map<size_t, Fate> fates;  // of unsafe operations; absent = Kept
  std::string name;              // "after 17 operations, write 12 torn at 512"
};

// Every state for every prefix: all unsafe operations lost; all kept; only data lost (rename before data); only names
// lost; each single one lost; each single one kept alone; each write torn four ways.
std::vector<CrashState> enumerate_crash_states(const std::vector<DiskOp>& log);

// What a crash left: path -> file content, named by which writes, whole or torn, it consists of. Directories have no
// content.
struct CrashedTree {
  std::map<std::string, std::string> contents;  // path -> key; directories end in '/'
  std::string signature() const;                // equal signatures mean equal trees
};
CrashedTree tree_after(const std::vector<DiskOp>& log, const CrashState& state);
// The bytes behind a key of CrashedTree.
std::string content_of(const std::vector<DiskOp>& log, const std::string& key);
// Builds trees below `root` from a pool of hard-linked files, since thousands of states share a few dozen contents.
class TreeBuilder {
 public:
  TreeBuilder(const std::vector<DiskOp>& log, std::filesystem::path pool);
  void build(const CrashedTree& tree, const std::filesystem::path& root);

 private:
  const std::vector<DiskOp>& log_;
  std::filesystem::path pool_;
  std::map<std::string, std::filesystem::path> files_;
};

// Fails at one operation (or from there on) like a disk, and notices when a descriptor is used again after its sync or
// write failed.
class FailingFileOps final : public FileOps {
 public:
  explicit FailingFileOps(FileOps& inner) : inner_(inner) {}
  void fail_at(int64_t operation, int64_t count) {
    fail_from_ = operation, fail_count_ = count;
  }  // from 0; count operations fail
  int64_t operations() const { return operations_; }
  int64_t reused_after_failure() const { return reused_; }

  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  void make_directory(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;

 private:
  friend class FailingFile;
  void step(const std::string& what);
  FileOps& inner_;
  int64_t operations_ = 0, fail_from_ = -1, fail_count_ = 0, reused_ = 0;
};

}  // namespace redline::train
