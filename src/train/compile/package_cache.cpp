#include "train/compile/package_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/strings.h"
#include "train/convert.h"

namespace redline::train {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kFacts = "step.json";
constexpr size_t kMostPackages = 64;  // of all jobs of this user
constexpr size_t kMostFacts = 1 << 16;

std::string checksum_of(const fs::path& path) { return sha256_hex(read_file(path)); }

// A package is code that runs as us, and its checksum lies beside it: who may write to its folder is who we trust. Why
// that is somebody else; empty: it is us alone.
std::string distrust(const fs::path& folder) {
  struct stat facts {};
  if (::lstat(folder.c_str(), &facts) != 0) return fmt::format("it cannot be looked at: {}", std::strerror(errno));
  if (!S_ISDIR(facts.st_mode)) return "it is no folder";
  if (facts.st_uid != ::geteuid()) return "it belongs to another user";
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) != 0) return "others may write to it";
  return {};
}

json facts_of(const fs::path& folder) {
  std::error_code code;
  if (!fs::is_regular_file(folder / kFacts, code)) return nullptr;
  return json::parse(read_file(folder / kFacts, kMostFacts), nullptr, /*allow_exceptions=*/false);
}

}  // namespace

std::string package_name(const TracedStep& step, const CompileSettings& settings) {
  Sha256 hash;
  hash.update(step.text().dump());
  for (const auto& [number, tensor] : step.program.constants) {
    const torch::Tensor bytes = tensor.cpu().contiguous();
    hash.update(std::span(static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()));
  }
  hash.update(settings.machine);
  hash.update(fmt::format("threads {} torch {}", settings.threads, TORCH_VERSION));
  hash.update(read_file(python_script("compile_step.py")));
  return hash.finish_hex();
}

std::optional<fs::path> PackageCache::find(const std::string& name, std::string* problem) const {
  const fs::path folder = folder_ / name, package = folder / kPackage;
  std::error_code code;
  if (!fs::exists(folder, code)) return std::nullopt;
  try {
    if (const std::string why = distrust(folder); !why.empty()) {
      *problem = fmt::format("The compiled step {} is not used: {}.", printable(folder.string()), why);
      drop(name);  // where that is ours to do; else another cannot be kept here, which is said
      return std::nullopt;
    }
    const json facts = facts_of(folder);
    if (facts.is_object() && facts.value("sha256", "") == checksum_of(package)) {
      fs::last_write_time(folder / kFacts, fs::file_time_type::clock::now(), code);  // the least recently used go first
      return package;
    }
    *problem = fmt::format("The compiled step {} is damaged and is made anew.", printable(package.string()));
  } catch (const std::exception& error) {
    *problem = fmt::format("The compiled step {} cannot be read and is made anew: {}", printable(package.string()),
                           error.what());
  }
  remove_own_folder(folder);
  return std::nullopt;
}

double PackageCache::seconds_of(const std::string& name) const {
  const json facts = facts_of(folder_ / name);
  return facts.is_object() ? facts.value("seconds", 0.0) : 0.0;
}

OwnFolder PackageCache::scratch() const {
  posix_file_ops().make_directory(folder_);
  return OwnFolder::temporary("compile", folder_);
}

fs::path PackageCache::keep(OwnFolder scratch, const std::string& name, double seconds) const {
  OwnFolder entry = OwnFolder::temporary("package", folder_);
  posix_file_ops().rename(scratch.path() / kPackage, entry.path() / kPackage);
  const json facts = {{"sha256", checksum_of(entry.path() / kPackage)}, {"seconds", seconds}};
  write_file_atomic(entry.path() / kFacts, facts.dump());
  if (!entry.publish(folder_ / name)) {  // another process was there first with the same; or what lies there is no such
    std::string problem;
    const auto theirs = find(name, &problem);
    if (theirs) return *theirs;
    if (!entry.publish(folder_ / name))
      throw DiskError(
          fmt::format("'{}' is in the way of a compiled step; remove it.", printable((folder_ / name).string())));
  }
  drop_oldest();
  return folder_ / name / kPackage;
}

void PackageCache::drop(const std::string& name) const {
  try {
    remove_own_folder(folder_ / name);
  } catch (const DiskError& error) {
    log_debug(error.what());
  }
}

void PackageCache::drop_oldest() const {
  std::vector<std::pair<fs::file_time_type, fs::path>> all;
  std::error_code code;
  for (const auto& entry : fs::directory_iterator(folder_, code))
    if (fs::exists(entry.path() / kFacts, code))
      all.emplace_back(fs::last_write_time(entry.path() / kFacts, code), entry.path());
  std::sort(all.begin(), all.end());
  for (size_t i = 0; i + kMostPackages < all.size(); ++i) {
    try {
      remove_own_folder(all[i].second);
    } catch (const DiskError& error) {
      log_debug(error.what());
    }
  }
}

}  // namespace redline::train
