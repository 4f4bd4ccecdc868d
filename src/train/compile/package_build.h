// One compilation in a child process: Python and Inductor from the project's environment, without network where that
// can be cut off, with bounded time and memory. Its failure is an outcome, never an error of the training.
#pragma once

#include <memory>
#include <optional>

#include "train/child/child_process.h"
#include "train/compile/package_cache.h"

namespace redline::train {

class PackageBuild {
 public:
  // Starts it. Throws DeviceError and DiskError.
  PackageBuild(const TracedStep& step, const std::string& name, const CompileSettings& settings);

  struct Outcome {
    std::optional<std::filesystem::path> package;
    std::string problem;  // a sentence when there is no package
    double seconds = 0;
  };
  // None while it runs; waits that long, without end when negative (but for the limit of the settings, and until a stop
  // of the run is asked for).
  std::optional<Outcome> poll(double wait_seconds);
  const std::string& name() const { return name_; }

 private:
  Outcome ended(const ChildResult& result);

  std::string name_;
  double limit_seconds_;
  int64_t begin_ns_;
  PackageCache cache_;
  std::optional<OwnFolder> scratch_;
  std::unique_ptr<ChildProcess> child_;
};

}  // namespace redline::train
