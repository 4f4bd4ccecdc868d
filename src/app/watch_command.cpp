// redline watch RUN...: a live view of running jobs, from their records alone. On a terminal it is drawn in place and
// stays after the runs' end (a run may be resumed); into a pipe it writes one line a run and refresh, and ends with the
// runs.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "app/command.h"
#include "app/run_names.h"
#include "app/terminal.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "measure/machine_json.h"
#include "measure/run_glance.h"
#include "models/register.h"
#include "report/watch.h"
#include "tune/experiments.h"

namespace redline::app {

void add_watch_command(CLI::App& program, const Globals& globals);

namespace {

constexpr size_t kFewestSteps = 8, kMostSpeeds = 240;
constexpr double kRecentSeconds = 60;  // of the surroundings

struct WatchArguments {
  std::vector<std::string> runs;
  double every = 1;
  bool once = false;
};

volatile std::sig_atomic_t watch_over = 0;

bool has_letters() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (const char* value = std::getenv(name); value != nullptr && *value != 0)
      return to_lower(value).find("utf-8") != std::string::npos || to_lower(value).find("utf8") != std::string::npos;
  return false;
}

// One run over the refreshes. What does not change is read once.
class Watched {
 public:
  Watched(std::string name, std::filesystem::path directory)
      : name_(std::move(name)), directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }

  report::WatchedRun look(const measure::HeldFiles& held, const task::Registry& registry) {
    report::WatchedRun run;
    run.name = name_;
    const auto glance = measure::glance_at_run(directory_, held);
    if (!glance) {
      run.state = "gone";
      return run;
    }
    run.state = measure::run_phase_name(glance->phase);
    run.ended = glance->ended;
    run.step = glance->step;
    run.max_steps = glance->max_steps;
    const auto now = std::filesystem::file_time_type::clock::now();
    run.seconds_since_written = std::max(0.0, std::chrono::duration<double>(now - glance->written).count());
    if (const auto loss = glance->validation.find("val_loss"); loss != glance->validation.end())
      run.validation_loss = loss->second;
    if (glance->rows.empty()) return run;
    run.loss = glance->rows.back().loss;
    add_speeds(glance->rows);
    run.speeds = speeds_;
    const std::vector<measure::SurroundingsWindow> around = read_events(registry);
    if (run.ended.empty()) run.ended = ended_;
    run.seen = doctor::observe(glance->rows, 0, job_.computes_padding);
    run.seen.surroundings = doctor::summarise(around);
    run.seen.checkpoint_writes = writes_;
    const auto metrics = measure::last_metrics(directory_);
    const auto metric = [&](const char* name) -> std::optional<double> {
      const auto found = metrics.find(name);
      if (found == metrics.end()) return std::nullopt;
      return found->second;
    };
    run.gpu_utilisation = metric("gpu_utilisation");
    run.gpu_bytes = metric("gpu_memory_bytes");
    if (glance->rows.size() >= kFewestSteps) run.diagnosis = doctor::diagnose(job_, run.seen, {}, machine_);
    return run;
  }

 private:
  // A value for each refresh, of the steps that came since the last; the first call fills in what came before.
  void add_speeds(const std::vector<measure::StepRow>& rows) {
    constexpr size_t kStepsOfOne = 8;
    double samples = 0, seconds = 0;
    size_t count = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].step <= last_step_) continue;
      samples += rows[i].samples, seconds += static_cast<double>(rows[i].wall_ns) * 1e-9;
      if (++count < kStepsOfOne && i + 1 < rows.size() && last_step_ == 0) continue;
      if (last_step_ != 0 && i + 1 < rows.size()) continue;
      if (seconds > 0) speeds_.push_back(samples / seconds);
      samples = seconds = 0, count = 0;
    }
    last_step_ = rows.back().step;
    if (speeds_.size() > kMostSpeeds) speeds_.erase(speeds_.begin(), speeds_.end() - kMostSpeeds);
  }

  std::vector<measure::SurroundingsWindow> read_events(const task::Registry& registry) {
    measure::RunRecord record;
    measure::EdgeEvents events = measure::edge_events(directory_);
    if (!known_) {
      record.config_yaml = read_file(directory_ / "config.resolved.yaml", 4 << 20);
      record.events = std::move(events.first);
      job_ = tune::view_of_record(record, registry);
      const auto path = directory_ / "machine.json";
      if (std::filesystem::exists(path)) machine_ = measure::machine_from_json(read_file(path, 4 << 20), path.string());
      known_ = true;
    }
    record.events = std::move(events.last);
    ended_.clear();
    if (!record.events.empty() && record.events.back().kind == "run.ended")
      if (const measure::FieldValue* why = record.events.back().find("why"))
        if (const auto* text = std::get_if<std::string>(why)) ended_ = *text;
    writes_ = doctor::checkpoint_writes(record);
    std::vector<measure::SurroundingsWindow> around = doctor::surroundings_of(record);
    double seconds = 0;
    auto first = around.end();
    while (first != around.begin() && seconds < kRecentSeconds) seconds += (--first)->seconds;
    around.erase(around.begin(), first);
    return around;
  }

  std::string name_;
  std::filesystem::path directory_;
  bool known_ = false;
  doctor::JobView job_;
  MachineFacts machine_;
  std::optional<doctor::CheckpointWrites> writes_;
  std::string ended_;
  std::vector<double> speeds_;
  int64_t last_step_ = 0;
};

// Over what was drawn before: up, each line anew and cleared to its end, and nothing left below.
size_t draw_again(const std::vector<std::string>& lines, size_t drawn) {
  std::string text = drawn > 0 ? fmt::format("\x1b[{}A\r", drawn) : "";
  for (const std::string& line : lines) text += line + "\x1b[K\n";
  text += "\x1b[J";
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  return lines.size();
}

void run_watch(const WatchArguments& arguments) {
  task::Registry registry;
  models::register_all(registry);
  std::vector<Watched> runs;
  for (const std::string& word : arguments.runs) {
    const std::filesystem::path run = find_run(word);
    runs.emplace_back(run.string(), run);
  }
  const bool terminal = isatty(STDOUT_FILENO) == 1 && !arguments.once;
  const bool letters = has_letters();
  std::signal(SIGINT, [](int) { watch_over = 1; });
  std::signal(SIGTERM, [](int) { watch_over = 1; });
  size_t drawn = 0;
  while (watch_over == 0) {
    const measure::HeldFiles held = measure::HeldFiles::now();
    std::vector<std::string> lines;
    bool running = false;
    const int width = terminal_width() - 1, height = terminal_height();
    for (Watched& one : runs) {
      const report::WatchedRun seen = one.look(held, registry);
      running = running || seen.state == "running";
      if (terminal) {
        if (!lines.empty()) lines.emplace_back();
        for (std::string& line : report::watch_lines(seen, width, letters)) lines.push_back(std::move(line));
      } else {
        lines.push_back(report::watch_line(seen));
      }
    }
    if (terminal) {
      if (height > 2 && lines.size() + 1 > static_cast<size_t>(height)) lines.resize(static_cast<size_t>(height) - 1);
      drawn = draw_again(lines, drawn);
    } else {
      for (const std::string& line : lines) fmt::print("{}\n", line);
      std::fflush(stdout);
      if (std::ferror(stdout) != 0) return;  // who read it is gone
    }
    if (arguments.once || (!terminal && !running)) return;
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.every);
    while (watch_over == 0 && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(0.5, arguments.every)));
  }
}

}  // namespace

void add_watch_command(CLI::App& program, const Globals& /*globals*/) {
  auto arguments = std::make_shared<WatchArguments>();
  CLI::App* command = program.add_subcommand(
      "watch", "Watch running jobs: speed, phases, memory, cores, disturbance, what limits them, time left");
  command->add_option("runs", arguments->runs, "Run directories, or names as for report")->required();
  command->add_option("--every", arguments->every, "Seconds between two looks")->check(CLI::Range(0.2, 3600.0));
  command->add_flag("--once", arguments->once, "Look once");
  command->callback([arguments] { run_watch(*arguments); });
}

}  // namespace redline::app
