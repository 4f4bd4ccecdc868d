#include "train/compile/package_cache.h"

#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
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
    const json facts = facts_of(folder);
    if (facts.is_object() && facts.value("sha256", "") == checksum_of(package)) return package;
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
  entry.publish(folder_ / name);  // false: another process was there first with the same
  drop_oldest();
  return folder_ / name / kPackage;
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
