// See chaos.h.
#include "train/chaos.h"

#include <signal.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/strings.h"
#include "train/checkpoint/generation.h"
#include "train/checkpoint/snapshot.h"
#include "train/child/child_process.h"
#include "train/diff.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

// What the undisturbed run left: the measure of all others.
struct Reference {
  measure::RunRecord record;
  std::map<int64_t, SampleRow> samples;
  std::map<std::string, std::string> sha256;  // file name -> of the newest generation
  KillWindow window;
};

ChildOptions train_child(const ChaosRequest& request, const fs::path& run, const KillPlan& plan) {
  ChildOptions options;
  options.arguments = request.command;
  options.arguments.insert(options.arguments.end(), plan.overrides.begin(), plan.overrides.end());
  options.arguments.insert(options.arguments.end(), {"--run-dir", run.string()});
  options.environment = {{"REDLINE_SAMPLE_LOG", "1"}, {"REDLINE_FAULTS", ""}};
  if (plan.aimed) {
    const std::string point = plan.inside_operation ? "checkpoint.kill_soon@" : "checkpoint.kill@";
    options.environment[1].second = point + std::to_string(plan.operation);
  }
  options.output = run.parent_path() / (run.filename().string() + ".log");
  return options;
}

std::string last_words(const fs::path& log) {
  const std::string text = trim(read_file(log));
  return printable(text.size() > 600 ? text.substr(text.size() - 600) : text);
}

std::optional<fs::path> newest_generation(const fs::path& run) {
  const std::vector<fs::path> paths = generation_paths(run / "checkpoints");
  return paths.empty() ? std::nullopt : std::optional(paths.back());
}

std::map<std::string, std::string> generation_hashes(const fs::path& run) {
  std::map<std::string, std::string> hashes;
  const auto path = newest_generation(run);
  if (!path) return hashes;
  const VerifyReport report = verify_generation(*path, VerifyDepth::Sha256);
  if (!report.damage.empty() || !report.manifest) return hashes;
  hashes["step"] = std::to_string(report.manifest->step);
  for (const FileDigest& file : report.manifest->files) {
    if (file.name != kStateFile)
      hashes[file.name] = file.sha256;  // the state tells worker settings, which differ on purpose
  }
  return hashes;
}

// Disk operations of one save: a directory, create/write/sync of each file, manifest, two directory syncs and a rename,
// then the removal of an old generation file by file.
int64_t operations_per_save(const fs::path& run) {
  int64_t operations = 1 + 3 + 2 + 1 + 7;
  if (const auto path = newest_generation(run)) {
    for (const FileDigest& file : read_manifest(*path).files)
      operations += 2 + static_cast<int64_t>(file.crc32c.size());
  }
  return operations;
}

Reference make_reference(const ChaosRequest& request, const fs::path& run) {
  ChildProcess child(train_child(request, run, {}));
  const auto result = child.wait(request.timeout_seconds);
  const fs::path log = run.parent_path() / (run.filename().string() + ".log");
  if (!result || result->exit_code != 0) {
    // A mistake in the job keeps its own code.
    const bool ended = result && result->signal == 0 && result->exit_code > 0;
    throw Error(
        ended ? static_cast<ExitCode>(result->exit_code) : ExitCode::Failure,
        "The undisturbed run " +
            (result ? "ended with code " + std::to_string(result->exit_code) : std::string("did not end in time")) +
            ", so there is nothing to compare with. Its last words: " + last_words(log));
  }
  Reference reference;
  reference.record = measure::read_run(run);
  reference.samples = read_sample_log(run);
  reference.sha256 = generation_hashes(run);
  double stepping = 0;
  for (const measure::StepRow& row : reference.record.steps) stepping += static_cast<double>(row.wall_ns) * 1e-9;
  reference.window = {std::max(0.05, result->seconds - stepping), result->seconds, operations_per_save(run)};
  if (reference.record.steps.empty())
    throw DeviceError("The undisturbed run made no step; give the job at least a few.");
  if (reference.sha256.empty())
    throw DeviceError("The undisturbed run left no checkpoint, so kills could never resume; switch checkpoints on.");
  return reference;
}

void compare_completed_run(const Reference& reference, const fs::path& run, ChaosResult& result) {
  const std::string name = run.filename().string();
  const measure::RunRecord record = measure::read_run(run);
  if (const auto difference = first_step_difference(reference.record.steps, record.steps)) {
    result.problems.push_back(name + ": step " + std::to_string(difference->step) + " differs in " + difference->what +
                              ": " + format_double(difference->a) + " undisturbed, " + format_double(difference->b) +
                              " after kills");
  }
  for (const auto& [file, expected] : reference.sha256) {
    const auto hashes = generation_hashes(run);
    const auto found = hashes.find(file);
    if (found == hashes.end() || found->second != expected) {
      result.problems.push_back(name + ": " + file + " of the last checkpoint is " +
                                (found == hashes.end() ? "missing" : found->second) + ", undisturbed " + expected);
    }
  }
  compare_samples(reference.samples, read_sample_log(run), name, result.problems);
  for (const measure::Event& event : record.events) {
    if (event.kind == "checkpoint.damaged") {
      ++result.unreadable_states;
      result.problems.push_back(name + ": a resume met a damaged checkpoint");
    }
  }
  ++result.completed_runs;
}

// Right after a kill: every directory that carries the name of a generation must be whole.
void check_state(const fs::path& run, ChaosResult& result) {
  ++result.states_checked;
  for (const fs::path& path : generation_paths(run / "checkpoints")) {
    const VerifyReport report = verify_generation(path, VerifyDepth::Crc);
    if (report.damage.empty()) continue;
    ++result.unreadable_states;
    result.problems.push_back("after kill " + std::to_string(result.kills) + ": " + report.damage.front().sentence());
  }
}

int64_t steps_recorded(const fs::path& run) {
  std::error_code code;
  if (!fs::exists(run / "steps.bin", code)) return 0;
  int64_t last = 0;
  for (const measure::StepRow& row : measure::read_run(run).steps) last = std::max(last, row.step);
  return last;
}

int64_t steps_saved(const fs::path& run) {
  const auto path = newest_generation(run);
  return path ? generation_step(path->filename().string()).value_or(0) : 0;
}

// One life of the process. Returns true when it reached the end of the job.
bool live_once(const ChaosRequest& request, const fs::path& run, const KillPlan& plan, ChaosResult& result) {
  ++result.restarts;
  ChildProcess child(train_child(request, run, plan));
  std::optional<ChildResult> end = child.wait(plan.aimed ? request.timeout_seconds : plan.after_seconds);
  if (!end && !plan.aimed) {
    child.send(SIGKILL);
    end = child.wait();
  }
  if (end && end->exit_code == 0) return true;
  if (end && end->signal == SIGKILL) {
    ++result.kills;
    result.aimed_kills += plan.aimed;
    check_state(run, result);
    result.steps_repeated += std::max<int64_t>(0, steps_recorded(run) - steps_saved(run));
    return false;
  }
  const fs::path log = run.parent_path() / (run.filename().string() + ".log");
  result.problems.push_back("restart " + std::to_string(result.restarts) + " " +
                            (!end               ? std::string("did not end in time")
                             : end->signal != 0 ? "was ended by signal " + std::to_string(end->signal)
                                                : "ended with code " + std::to_string(end->exit_code)) +
                            ": " + last_words(log));
  return false;
}

}  // namespace

KillPlan plan_kill(KeyedStream& random, const ChaosRequest& request, const KillWindow& window) {
  KillPlan plan;
  plan.aimed = random.uniform() < request.aimed_share;
  // A third of the job per life: long enough to pass a save, short enough that several lives make one run.
  plan.after_seconds =
      random.uniform(0, window.startup_seconds + std::max(0.1, (window.run_seconds - window.startup_seconds) / 3));
  plan.operation = random.uniform_int(1, std::max<int64_t>(1, window.operations_per_save * 3 / 2));
  plan.inside_operation = random.uniform() < 0.5;
  for (const auto& [name, values] : request.varied) {
    plan.overrides.push_back(
        name + "=" + values[static_cast<size_t>(random.uniform_int(0, static_cast<int64_t>(values.size()) - 1))]);
  }
  return plan;
}

void compare_samples(const std::map<int64_t, SampleRow>& expected, const std::map<int64_t, SampleRow>& found,
                     const std::string& run, std::vector<std::string>& problems) {
  if (expected.empty()) {
    problems.push_back(run + ": the job kept no log of its samples");
    return;
  }
  std::map<int64_t, std::set<int64_t>> seen;  // per epoch
  for (const auto& [step, row] : found) {
    for (int64_t id : row.sample_ids) {
      if (!seen[row.epoch].insert(id).second) {
        problems.push_back(run + ": sample " + std::to_string(id) + " came twice in epoch " +
                           std::to_string(row.epoch) + " (step " + std::to_string(step) + ")");
        return;
      }
    }
  }
  for (const auto& [step, row] : expected) {
    const auto other = found.find(step);
    if (other == found.end() || other->second.epoch != row.epoch || other->second.sample_ids != row.sample_ids) {
      problems.push_back(run + ": step " + std::to_string(step) + " used other samples than the undisturbed run");
      return;
    }
  }
  if (found.size() != expected.size())
    problems.push_back(run + ": it logged samples for more steps than the undisturbed run");
}

ChaosResult run_chaos(const ChaosRequest& request, const std::function<void(const std::string&)>& progress) {
  fs::create_directories(request.work_directory);
  ChaosResult result;
  progress("undisturbed run");
  const Reference reference = make_reference(request, request.work_directory / "undisturbed");
  result.steps = static_cast<int64_t>(reference.record.steps.size());
  result.weights_sha256 = reference.sha256.contains(kModelFile) ? reference.sha256.at(kModelFile) : "";
  std::set<int64_t> epochs;
  for (const auto& [step, row] : reference.samples) {
    epochs.insert(row.epoch);
    result.samples += static_cast<int64_t>(row.sample_ids.size());
  }
  result.epochs = static_cast<int64_t>(epochs.size());

  KeyedStream random(request.seed, 0, 0, 0);
  for (int64_t number = 1; result.problems.empty() && (result.kills < request.kills || number == 1); ++number) {
    const fs::path run = request.work_directory / ("killed-" + std::to_string(number));
    bool finished = false;
    while (!finished && result.problems.empty()) {
      KillPlan plan = plan_kill(random, request, reference.window);
      if (result.kills >= request.kills) {  // enough: this life may reach the end
        plan.aimed = false;
        plan.after_seconds = request.timeout_seconds;
      }
      finished = live_once(request, run, plan, result);
      progress(std::to_string(result.kills) + " of " + std::to_string(request.kills) + " kills, run " +
               std::to_string(number) + (finished ? " finished" : " at step " + std::to_string(steps_saved(run))));
    }
    if (finished) compare_completed_run(reference, run, result);
  }
  return result;
}

}  // namespace redline::train
