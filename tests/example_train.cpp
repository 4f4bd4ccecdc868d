// `redline train` for the example task of docs/new_task.md, so that whole-process behaviour (signals, exit codes,
// kills, files read by Python) is tested before and beside the real workloads. Called like it: example_train train
// [key=value ...] [--flags].
#include <cstdio>
#include <cstring>
#include <exception>

#include "core/error.h"
#include "core/log.h"
#include "device/machine.h"
#include "train/testing/example_task.h"
#include "train/training_run.h"

namespace redline {
namespace {

int run(int argc, char** argv) {
  config::RequestSource source;
  source.overrides = {"task=curve"};
  train::RunOptions options;
  for (int i = 1; i < argc; ++i) {
    if (i == 1 && std::strcmp(argv[i], "train") == 0) continue;
    if (std::strcmp(argv[i], "--quiet") == 0)
      set_log_level(LogLevel::Warning);
    else if (std::strncmp(argv[i], "--trace=", 8) == 0)
      options.trace = measure::parse_step_range(argv[i] + 8);
    else
      source.overrides.push_back(argv[i]);
  }
  task::Registry registry;
  example::register_curve(registry);
  const auto job = train::Job::read(registry, source, device::read_machine_facts());
  train::run_training(*job, options);
  return 0;
}

}  // namespace
}  // namespace redline

int main(int argc, char** argv) {
  try {
    return redline::run(argc, argv);
  } catch (const redline::Error& error) {
    redline::log_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
