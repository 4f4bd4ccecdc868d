// Compiled steps on disk: one folder each, named by all that a package depends on, with a checksum. A package that was
// made for another machine, version, shape or model has another name, so a stale one is never found; one that was
// changed on disk, or that others than this user may write to, is not run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/own_folder.h"
#include "train/compile/compile_settings.h"
#include "train/compile/step_trace.h"

namespace redline::train {

// Of program, constants, machine, threads, LibTorch's version and the compiling script: 64 hexadecimal digits.
std::string package_name(const TracedStep& step, const CompileSettings& settings);

class PackageCache {
 public:
  explicit PackageCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The package's file, whole and unchanged. Empty: there is none. A damaged one is removed, and `problem` says so.
  std::optional<std::filesystem::path> find(const std::string& name, std::string* problem) const;
  // A place to build in, on the disk of the cache. Throws DiskError.
  OwnFolder scratch() const;
  // Takes the package in a scratch folder into the cache. Throws DiskError.
  std::filesystem::path keep(OwnFolder scratch, const std::string& name, double seconds) const;
  // One that cannot be loaded: the next run makes it anew.
  void drop(const std::string& name) const;

  static constexpr const char* kPackage = "step.pt2";
  // Seconds that making the package took, as keep() was told.
  double seconds_of(const std::string& name) const;

 private:
  void drop_oldest() const;

  std::filesystem::path folder_;
};

}  // namespace redline::train
