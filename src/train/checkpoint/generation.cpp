// The protocol. Nothing that exists is changed before the new generation is durable; "latest" is never stored, only
// derived.
#include "train/checkpoint/generation.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <set>

#include "core/check.h"
#include "core/error.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr const char* kTemporaryPrefix = ".tmp-";
constexpr const char* kTrashPrefix = ".trash-";
constexpr size_t kManifestLimitBytes = size_t{256} << 20;  // a terabyte of state needs 12 MB

std::string unique_suffix() {
  static std::atomic<uint64_t> counter{0};
  return std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

std::vector<fs::path> entries_of(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code))
    found.push_back(it->path());
  return found;
}

// The same for somebody who concludes from what is not there.
std::vector<fs::directory_entry> entries_or_error(const fs::path& directory) {
  std::vector<fs::directory_entry> found;
  std::error_code code(injected_error(directory), std::generic_category());
  if (!code) {
    for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code)) found.push_back(*it);
  }
  if (code && code != std::errc::no_such_file_or_directory && code != std::errc::not_a_directory)
    throw_reading_error(directory, code.value());
  return found;
}

// Bytes of a file that a generation must have.
uint64_t bytes_of_member(const fs::path& path) {
  struct stat facts {};
  int error = injected_error(path);
  if (error == 0 && ::stat(path.c_str(), &facts) != 0) error = errno;
  if (error == 0 && !S_ISREG(facts.st_mode)) throw DamagedError({path, std::nullopt, "it is not a regular file"});
  if (is_damage(error))
    throw DamagedError({path, std::nullopt, "it is missing (" + std::generic_category().message(error) + ")"});
  if (error != 0) throw_reading_error(path, error);
  return static_cast<uint64_t>(facts.st_size);
}

// The files a generation consists of, whole or half-written. A link to a folder is a name like any other.
bool is_generation_file(const fs::path& path) {
  const std::string name = path.filename().string();
  for (const char* known : {kModelFile, kOptimizerFile, kStateFile, kManifestName})
    if (name == known) return true;
  return false;
}

// Not recursive: only the files that a save writes go, and then the directory when nothing else is in it. Of a link (a
// generation that somebody moved to another disk) only the link goes.
void remove_files(const fs::path& directory, FileOps& ops) {
  std::error_code ignored;
  if (!fs::is_symlink(directory, ignored)) {
    for (const fs::path& path : entries_of(directory))
      if (is_generation_file(path)) ops.remove(path);
  }
  ops.remove(directory);
}

void remove_quietly(const fs::path& path, FileOps& ops) {
  try {
    remove_files(path, ops);
  } catch (const DiskError&) {  // the disk is already failing; remove_leftovers tries again at the next start
  }
}

FileDigest write_one_file(const fs::path& path, const GenerationFile& source, FileOps& ops) {
  const std::unique_ptr<WritableFile> file = ops.create(path);
  if (source.digest) {
    source.write(*file);
    file->sync();
    file->close();
    return *source.digest;
  }
  DigestFile digested(*file, source.name);
  source.write(digested);
  digested.sync();
  digested.close();
  return digested.digest();
}

// All blocks at once: which are damaged, and the SHA-256 of the file.
void verify_whole_file(const fs::path& path, const FileDigest& digest, VerifyReport& report) {
  const InputFile file(path);
  Sha256 sha;
  std::vector<std::byte> block(std::min(kBlockBytes, digest.bytes));
  bool damaged = false;
  for (uint64_t i = 0; i < digest.crc32c.size(); ++i) {
    const auto part = std::span(block).first(std::min(kBlockBytes, digest.bytes - i * kBlockBytes));
    file.read(i * kBlockBytes, part);
    sha.update(part);
    report.bytes_read += part.size();
    if (crc32c(part) != digest.crc32c[i]) {
      damaged = true;
      report.damage.push_back({path, i, "its CRC32C is not the one in the manifest"});
    }
  }
  if (!damaged && sha.finish_hex() != digest.sha256) {
    report.damage.push_back(
        {path, std::nullopt,
         "its SHA-256 is not the one in the manifest although every CRC32C fits: it was changed on purpose"});
  }
}

void check_file_size(const fs::path& path, const FileDigest& digest) {
  const uint64_t bytes = bytes_of_member(path);
  if (bytes != digest.bytes) {
    throw DamagedError(
        {path, std::min(bytes, digest.bytes) / kBlockBytes,
         "the file has " + std::to_string(bytes) + " bytes, the manifest says " + std::to_string(digest.bytes)});
  }
}

}  // namespace

std::string generation_name(int64_t step) {
  REDLINE_CHECK(step >= 0, "steps are counted from 0");
  char text[32];
  std::snprintf(text, sizeof(text), "step-%08lld", static_cast<long long>(step));
  return text;
}

std::optional<int64_t> generation_step(const std::string& name) {
  if (!starts_with(name, kStepPrefix) || name.size() < kStepPrefix.size() + 8) return std::nullopt;
  int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  if (error != std::errc() || stop != end || step < 0 || generation_name(step) != name) return std::nullopt;
  return step;
}

std::vector<fs::path> generation_paths(const fs::path& directory) {
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const fs::directory_entry& entry : entries_or_error(directory)) {
    const auto step = generation_step(entry.path().filename().string());
    if (!step) continue;
    std::error_code code;
    if (entry.is_directory(code)) found.emplace_back(*step, entry.path());
    if (code && !is_damage(code.value())) throw_reading_error(entry.path(), code.value());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

std::vector<std::string> remains_of_generations(const fs::path& directory) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : entries_or_error(directory)) {
    const std::string name = entry.path().filename().string();
    for (const char* prefix : {"quarantine-step-", "superseded-step-", ".tmp-step-", ".trash-step-"})
      if (starts_with(name, prefix)) found.push_back(name);
  }
  std::sort(found.begin(), found.end());
  return found;
}

uint64_t write_generation(const fs::path& directory, const GenerationHead& head, std::span<const GenerationFile> files,
                          FileOps& ops) {
  const std::string name = generation_name(head.step);
  const fs::path temporary = directory / (kTemporaryPrefix + name + "-" + unique_suffix());
  uint64_t bytes = 0;
  try {
    ops.make_directory(temporary);
    Manifest manifest{head.step, head.monitor, head.metric, utc_timestamp(), {}};
    for (const GenerationFile& file : files) {
      manifest.files.push_back(write_one_file(temporary / file.name, file, ops));
      bytes += manifest.files.back().bytes;
    }
    const std::string text = manifest_text(manifest);
    const std::unique_ptr<WritableFile> last = ops.create(temporary / kManifestName);
    last->write(std::as_bytes(std::span(text)));
    last->sync();
    last->close();
    ops.sync_directory(temporary);
    ops.rename(temporary, directory / name);
  } catch (...) {
    remove_quietly(temporary, ops);
    throw;
  }
  try {
    ops.sync_directory(directory);
  } catch (
      ...) {  // in place, but nobody can say whether it would survive: out of the way, so that it can be written again
    try {
      remove_generation(directory / name, ops);
    } catch (const DiskError&) {  // it verifies or it does not; a reader will tell
    }
    throw;
  }
  return bytes;
}

void remove_generation(const fs::path& generation, FileOps& ops) {
  for (const fs::path& path : entries_of(generation))
    if (!is_generation_file(path))
      throw DiskError("'" + printable(path.string()) +
                      "' was not written by redline, so its checkpoint is kept; move it elsewhere.");
  const fs::path trash =
      generation.parent_path() / (kTrashPrefix + generation.filename().string() + "-" + unique_suffix());
  ops.rename(generation, trash);
  ops.sync_directory(generation.parent_path());
  remove_files(trash, ops);
}

fs::path set_aside(const fs::path& generation, const std::string& prefix, FileOps& ops) {
  const std::string base = prefix + "-" + generation.filename().string();
  fs::path target = generation.parent_path() / base;
  for (int i = 2; fs::exists(target); ++i) target = generation.parent_path() / (base + "." + std::to_string(i));
  ops.rename(generation, target);
  ops.sync_directory(generation.parent_path());
  return target;
}

void remove_leftovers(const fs::path& directory, FileOps& ops) {
  for (const fs::path& path : entries_of(directory)) {
    const std::string name = path.filename().string();
    if (starts_with(name, kTemporaryPrefix) || starts_with(name, kTrashPrefix)) remove_quietly(path, ops);
  }
}

Manifest read_manifest(const fs::path& generation) {
  const fs::path path = generation / kManifestName;
  const uint64_t bytes = bytes_of_member(path);
  if (bytes > kManifestLimitBytes)
    throw DamagedError({path, std::nullopt, "it has " + format_bytes(bytes) + ", more than any manifest"});
  std::string text(bytes, '\0');
  InputFile(path).read(0, std::as_writable_bytes(std::span(text)));
  Manifest manifest = parse_manifest(text, path);
  const auto step = generation_step(generation.lexically_normal().filename().string());
  if (step && *step != manifest.step)
    throw DamagedError({path, 0, "it belongs to step " + std::to_string(manifest.step)});
  for (const FileDigest& digest : manifest.files) check_file_size(generation / digest.name, digest);
  return manifest;
}

VerifyReport verify_generation(const fs::path& generation, VerifyDepth depth) {
  VerifyReport report;
  try {
    report.manifest = read_manifest(generation);
  } catch (const DamagedError& error) {
    report.damage.push_back(error.damage());
    return report;
  }
  std::set<std::string> known = {kManifestName};
  for (const FileDigest& digest : report.manifest->files) {
    known.insert(digest.name);
    const fs::path path = generation / digest.name;
    try {
      if (depth == VerifyDepth::Crc) check_blocks(InputFile(path), digest.crc32c), report.bytes_read += digest.bytes;
      if (depth == VerifyDepth::Sha256) verify_whole_file(path, digest, report);
    } catch (const DamagedError& error) {
      report.damage.push_back(error.damage());
    }
  }
  for (const fs::path& path : entries_of(generation))
    if (!known.contains(path.filename().string())) report.extra.push_back(path.filename().string());
  std::sort(report.extra.begin(), report.extra.end());
  return report;
}

}  // namespace redline::train
