// Folders that redline makes for itself, and the only place in the program that removes a folder with what is in it.
//
// A folder is removed only when it carries redline's mark and no living process holds that mark: a user's files, a
// mount point, a home, a working directory or what a symbolic link points at are never touched, whatever path a caller
// passes by mistake. The holder is told by a lock on the mark, which the kernel drops however a process ends, so that
// scratch of killed processes is known to be nobody's, also across containers that share a folder.
#pragma once

#include <filesystem>
#include <string>

namespace redline {

inline constexpr const char* kOwnMark = ".redline-own";

// A folder for this process alone, removed with the object unless it was kept.
class OwnFolder {
 public:
  // BASE/redline-PURPOSE-XXXXXX. Removes what dead processes left there under such names first. Throws DiskError.
  static OwnFolder temporary(const std::string& purpose, const std::filesystem::path& base);
  static OwnFolder temporary(const std::string& purpose);  // in the temporary directory of the system
  // Exactly this path, which must not exist yet. Throws DiskError.
  static OwnFolder create(const std::filesystem::path& path);

  OwnFolder(OwnFolder&& other) noexcept;
  OwnFolder(const OwnFolder&) = delete;
  OwnFolder& operator=(const OwnFolder&) = delete;
  ~OwnFolder();

  const std::filesystem::path& path() const { return path_; }
  void keep(bool yes = true) { keep_ = yes; }
  // Renames it and gives it up: it stays, still marked, held by nobody. False when something is already there.
  bool publish(const std::filesystem::path& to);

 private:
  OwnFolder(std::filesystem::path path, int mark) : path_(std::move(path)), mark_(mark) {}

  std::filesystem::path path_;
  int mark_ = -1;  // descriptor that holds the lock
  bool keep_ = false;
};

// Removes a marked folder that nobody holds. Throws DiskError saying why it was left when it is anything else.
void remove_own_folder(const std::filesystem::path& path);

// Removes the marked folders directly below `base` whose name begins with `prefix` and whose maker is dead; what cannot
// be removed stays. Returns how many went.
int remove_abandoned_folders(const std::filesystem::path& base, const std::string& prefix);

}  // namespace redline
