// A disk in memory for tests: it records every operation, fails at the one you name, and shows what a crash would have
// left.
//
// The model of a crash: data that was not synced may be lost, torn or kept; a create, rename or remove may be lost
// until its directory is synced, or kept although the data it points to was never synced. Synced things stay. That is
// what POSIX promises, and no more, so code that survives every state here does not lean on one file system's kindness.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/file_ops.h"

namespace redline {

class MemoryFileOps final : public FileOps {
 public:
  using Files = std::map<std::string, std::string>;  // path -> content; directories end in '/'

  enum class Crash {
    KeepAll,       // everything issued so far reached the disk
    LoseUnsynced,  // only what was synced did
    LoseData,      // names reached the disk, unsynced data did not: renamed but empty
    TearData,      // names did, and the first half of the unsynced data
  };
  static constexpr Crash kCrashes[] = {Crash::KeepAll, Crash::LoseUnsynced, Crash::LoseData, Crash::TearData};

  std::unique_ptr<WritableFile> create(const std::filesystem::path& path) override;
  void make_directory(const std::filesystem::path& path) override;
  void rename(const std::filesystem::path& from, const std::filesystem::path& to) override;
  void remove(const std::filesystem::path& path) override;
  void sync_directory(const std::filesystem::path& path) override;

  // The operation with this number (from 0) and, when `forever`, all later ones throw DiskError as a full disk does.
  void fail_at(size_t operation, bool forever = false) { fail_at_ = operation, fail_forever_ = forever; }

  const std::vector<std::string>& operations() const {
    return operations_;
  }  // "write a.tmp 12", "rename a.tmp -> a", ...
  Files files() const { return view(Crash::KeepAll); }
  Files after_crash(Crash crash) const { return view(crash); }
  std::optional<std::string> content(const std::filesystem::path& path) const;

  // Runs `work` on a fresh disk (prepared by `prepare`) once per operation it makes, cut off there, and hands each
  // state a crash could leave to `judge`.
  static void for_every_crash(const std::function<void(MemoryFileOps&)>& prepare,
                              const std::function<void(MemoryFileOps&)>& work,
                              const std::function<void(const Files&)>& judge);

 private:
  friend class MemoryFile;
  struct Inode {
    std::string data;
    size_t synced = 0;  // bytes of data that are on the disk
  };
  using Names = std::map<std::string, std::shared_ptr<Inode>>;  // a null inode is a directory

  void step(std::string operation);
  Files view(Crash crash) const;

  Names names_, durable_names_;
  std::vector<std::string> operations_;
  size_t fail_at_ = SIZE_MAX;
  bool fail_forever_ = false;
};

}  // namespace redline
