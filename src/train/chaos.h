// The campaign behind `redline chaos`: the same job once undisturbed and then killed again and again, with other worker
// and prefetch settings at every restart. What comes out must be what would have happened anyway, bit for bit.
//
// Half of the kills come from outside at random times; half are aimed: the process kills itself at a chosen disk
// operation of a save (checkpoint.kill) or shortly after its start (checkpoint.kill_soon), which random times would
// hardly ever hit. A killed process keeps its page cache, so this proves atomicity, not power-loss safety; that is what
// the crash states are for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/philox.h"
#include "measure/run_record.h"
#include "train/checkpoint/sample_log.h"

namespace redline::train {

struct ChaosRequest {
  std::vector<std::string> command;  // program, "train", recipe, overrides; the run directory is added
  std::filesystem::path work_directory;
  int64_t kills = 50;
  double aimed_share = 0.5;
  uint64_t seed = 1;
  double timeout_seconds = 3600;  // of one child
  // Option names that must not change the result; each restart draws a value from the list.
  std::vector<std::pair<std::string, std::vector<std::string>>> varied;
};

// What one restart does. Pure: the same random stream gives the same plan.
struct KillPlan {
  bool aimed = false;
  double after_seconds = 0;  // not aimed: from the start of the process
  int64_t operation = 0;     // aimed: the n-th disk operation of its saves
  bool inside_operation = false;
  std::vector<std::string> overrides;
};
struct KillWindow {
  double startup_seconds = 1, run_seconds = 2;  // of the undisturbed run
  int64_t operations_per_save = 20;
};
KillPlan plan_kill(KeyedStream& random, const ChaosRequest& request, const KillWindow& window);

struct ChaosResult {
  int64_t kills = 0, aimed_kills = 0, restarts = 0, completed_runs = 0;
  int64_t states_checked = 0, unreadable_states = 0;  // directories looked at right after a kill
  int64_t steps = 0, epochs = 0, samples = 0;         // of the undisturbed run
  int64_t steps_repeated = 0;                         // work lost to kills and done again
  std::string weights_sha256;
  std::vector<std::string> problems;

  bool passed() const { return problems.empty() && unreadable_states == 0 && completed_runs > 0; }
  // 95 % upper bound on the share of kills that lose something, when none of n did (the rule of three).
  double upper_bound() const { return kills > 0 ? 3.0 / static_cast<double>(kills) : 1.0; }
};

// Throws DeviceError when the undisturbed run itself fails.
ChaosResult run_chaos(const ChaosRequest& request, const std::function<void(const std::string&)>& progress);

// The comparison alone: losses of every step, samples of every epoch; adds sentences to `problems`.
void compare_samples(const std::map<int64_t, SampleRow>& expected, const std::map<int64_t, SampleRow>& found,
                     const std::string& run, std::vector<std::string>& problems);

}  // namespace redline::train
