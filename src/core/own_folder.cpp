// The mark appears under its name only when its lock is already held, so nobody can take a folder for abandoned between
// its making and its marking. Removal walks descriptors, not paths, and stops at every mount point.
#include "core/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMagic = "redline's own folder, may be removed\n";

class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

[[noreturn]] void cannot_make(const fs::path& path, int code) {
  throw DiskError("The folder '" + printable(path.string()) + "' cannot be made: " + std::strerror(code) +
                  (code == ENOENT ? ". Check the path: the folder it is to be made in is not there."
                                  : ". Free space or inodes there, or set TMPDIR to another folder."));
}

[[noreturn]] void left_alone(const fs::path& path, const std::string& why) {
  throw DiskError("'" + printable(path.string()) + "' was not removed: " + why + ".");
}

// The mark under a passing name, locked, then renamed: returns the descriptor that holds the lock.
int put_mark(const fs::path& folder) {
  const fs::path draft = folder / (std::string(kOwnMark) + ".new");
  Descriptor file(::open(draft.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text =
      std::string(kMagic) + "process " + std::to_string(::getpid()) + " since " + utc_timestamp() + "\n";
  const bool made = file.get() >= 0 && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0 &&
                    ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                    ::rename(draft.c_str(), (folder / kOwnMark).c_str()) == 0;
  if (made) return file.release();
  const int code = errno != 0 ? errno : ENOSPC;
  ::unlink(draft.c_str());
  ::rmdir(folder.c_str());  // made by the caller a moment ago, empty
  cannot_make(folder, code);
}

bool is_mount_point(int folder) {
  struct statx facts {};
  return ::statx(folder, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &facts) != 0 ||
         (facts.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

// True when `inside` is `folder` or below it.
bool contains(const fs::path& folder, const fs::path& inside) {
  if (inside.empty()) return false;
  std::error_code code;
  for (fs::path at = fs::weakly_canonical(inside, code); !code; at = at.parent_path()) {
    std::error_code ignored;
    if (fs::equivalent(at, folder, ignored)) return true;
    if (at == at.parent_path()) break;
  }
  return false;
}

fs::path home_of_user() {
  if (const char* home = std::getenv("HOME"); home != nullptr && *home != 0) return home;
  const passwd* entry = ::getpwuid(::getuid());
  return entry != nullptr && entry->pw_dir != nullptr ? entry->pw_dir : "";
}

std::vector<std::string> names_in(int folder) {
  std::vector<std::string> names;
  const int copy = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = copy >= 0 ? ::fdopendir(copy) : nullptr;
  if (stream == nullptr) {
    if (copy >= 0) ::close(copy);
    return names;
  }
  while (const dirent* entry = ::readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(stream);
  return names;
}

void remove_content(int folder, const fs::path& path, bool top) {
  for (const std::string& name : names_in(folder)) {
    if (top && name == kOwnMark) continue;  // last: what stays after a failure is still ours
    if (::unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) left_alone(path / name, std::strerror(errno));
    const Descriptor inner(::openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (inner.get() < 0) left_alone(path / name, std::strerror(errno));
    if (is_mount_point(inner.get())) left_alone(path / name, "something is mounted there");
    remove_content(inner.get(), path / name, false);
    if (::unlinkat(folder, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
      left_alone(path / name, std::strerror(errno));
  }
}

bool has_magic(int mark) {
  char text[kMagic.size()];
  return ::pread(mark, text, sizeof(text), 0) == static_cast<ssize_t>(sizeof(text)) &&
         std::string_view(text, sizeof(text)) == kMagic;
}

// `held`: this process holds the lock already.
void remove_marked(const fs::path& path, bool held) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (folder.get() < 0) {
    if (errno == ENOENT) return;
    left_alone(path, errno == ELOOP || errno == ENOTDIR ? "it is no folder" : std::strerror(errno));
  }
  if (is_mount_point(folder.get())) left_alone(path, "something is mounted there");
  const Descriptor mark(::openat(folder.get(), kOwnMark, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (mark.get() < 0 || !has_magic(mark.get())) left_alone(path, "it does not carry redline's mark");
  if (!held && ::flock(mark.get(), LOCK_EX | LOCK_NB) != 0) left_alone(path, "a living process uses it");
  std::error_code code;
  if (contains(path, fs::current_path(code)) || contains(path, home_of_user()))
    left_alone(path, "the working directory or a home is in it");
  remove_content(folder.get(), path, true);
  if (::unlinkat(folder.get(), kOwnMark, 0) != 0 || ::rmdir(path.c_str()) != 0) left_alone(path, std::strerror(errno));
}

}  // namespace

OwnFolder OwnFolder::temporary(const std::string& purpose, const fs::path& base) {
  const std::string prefix = "redline-" + purpose + "-";
  remove_abandoned_folders(base, prefix);
  std::string name = (base / (prefix + "XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) cannot_make(name, errno);
  return {name, put_mark(name)};
}

OwnFolder OwnFolder::temporary(const std::string& purpose) {
  std::error_code code;
  const fs::path base = fs::temp_directory_path(code);
  if (code)
    throw DiskError("There is no folder for temporary files (" + code.message() +
                    "); set TMPDIR to one that exists and may be written to.");
  return temporary(purpose, base);
}

OwnFolder OwnFolder::create(const fs::path& path) {
  std::error_code code;
  if (path.has_parent_path()) fs::create_directories(path.parent_path(), code);
  if (::mkdir(path.c_str(), 0777) != 0) cannot_make(path, errno);
  return {path, put_mark(path)};
}

OwnFolder::OwnFolder(OwnFolder&& other) noexcept
    : path_(std::move(other.path_)), mark_(std::exchange(other.mark_, -1)), keep_(other.keep_) {}

OwnFolder::~OwnFolder() {
  if (mark_ < 0) return;
  try {
    if (!keep_) remove_marked(path_, /*held=*/true);
  } catch (const DiskError&) {  // what stays is found by the next process that makes such a folder
  }
  ::close(mark_);
}

bool OwnFolder::publish(const fs::path& to) {
  if (::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) != 0) {
    // Some file systems do not know the flag; a plain rename replaces nothing but an empty folder.
    if (errno != EINVAL || ::rename(path_.c_str(), to.c_str()) != 0) {
      if (errno == EEXIST || errno == ENOTEMPTY) return false;
      throw DiskError("'" + printable(to.string()) + "' cannot be put in place: " + std::strerror(errno) + ".");
    }
  }
  path_ = to;
  keep_ = true;
  ::close(std::exchange(mark_, -1));
  return true;
}

void remove_own_folder(const fs::path& path) { remove_marked(path, /*held=*/false); }

int remove_abandoned_folders(const fs::path& base, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(base, code), end; !code && it != end; it.increment(code))
    if (starts_with(it->path().filename().string(), prefix)) found.push_back(it->path());
  int removed = 0;
  for (const fs::path& path : found) {
    try {
      remove_marked(path, /*held=*/false);
      ++removed;
    } catch (const DiskError&) {  // unmarked, held, or of another user
    }
  }
  return removed;
}

}  // namespace redline
