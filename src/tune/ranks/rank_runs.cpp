#include "tune/ranks/rank_runs.h"

#include <fmt/format.h>

#include "core/error.h"
#include "core/own_folder.h"
#include "core/strings.h"

namespace redline::tune {

RankRun read_rank_run(const measure::RunRecord& record, const std::string& metric, int64_t warm_up) {
  using measure::Phase;
  RankRun run;
  double seconds = 0, samples = 0, steps = 0;
  for (const measure::StepRow& row : record.steps) {
    run.losses.push_back(row.loss);
    if (row.step <= warm_up) continue;
    int64_t ns = row.wall_ns;
    for (const Phase phase : {Phase::Log, Phase::Monitor, Phase::Validate, Phase::Checkpoint})
      ns -= row.phase_ns[static_cast<size_t>(phase)];
    seconds += 1e-9 * static_cast<double>(ns);
    samples += row.samples;
    ++steps;
  }
  if (samples > 0) {
    run.seconds_per_sample = seconds / samples;
    run.samples_per_step = samples / steps;
  }
  for (const measure::MetricPoint& point : record.metrics)
    if (point.name == metric) run.held_out = point.value;
  for (const measure::Event& event : record.events)
    if (const measure::FieldValue* value = event.find("gradient_bytes"); value != nullptr)
      if (const auto* bytes = std::get_if<int64_t>(value)) run.gradient_bytes = static_cast<double>(*bytes);
  if (run.losses.empty()) run.failure = "no step was made";
  return run;
}

RankRun RankRuns::start(const Setting& setting, const std::vector<std::string>& more) const {
  const config::RequestSource& source = request_.tune.source;
  const OwnFolder own = OwnFolder::temporary("rank-run", request_.scratch);
  const std::filesystem::path folder = own.path() / "run";
  std::vector<std::string> words{"--quiet", "train", source.file->string()};
  if (source.preset) words.insert(words.end(), {"--preset", *source.preset});
  words.insert(words.end(), source.overrides.begin(), source.overrides.end());
  Setting quiet{{"exp_manager.create_checkpoint_callback", "false"},
                {"exp_manager.create_tensorboard_logger", "false"},
                {"trainer.enable_progress_bar", "false"},
                {"trainer.num_sanity_val_steps", "0"},
                {"trainer.devices", std::to_string(ranks_of_job_)}};
  for (const std::string& word : setting_overrides(combine(quiet, setting))) words.push_back(word);
  words.insert(words.end(), more.begin(), more.end());
  words.push_back("--run-dir=" + folder.string());
  const auto devices = setting.find("trainer.devices");
  const int ranks = devices == setting.end() ? ranks_of_job_ : static_cast<int>(*parse_int(devices->second));
  const int code = request_.launch(ranks, words);
  if (code == static_cast<int>(ExitCode::Preempted)) throw PreemptedError("Tuning was stopped; nothing was written.");
  RankRun failed;
  if (code != 0) failed.failure = fmt::format("the run ended with code {}", code);
  if (code != 0 && !measure::has_run_record(folder)) return failed;
  RankRun run = read_rank_run(measure::read_run(folder), metric_, kWarmUp);
  if (code != 0) run.failure = failed.failure;
  return run;
}

RankRun RankRuns::run(const Setting& setting, int64_t steps, const std::vector<std::string>& more) const {
  std::vector<std::string> words{fmt::format("trainer.max_steps={}", steps), "trainer.limit_val_batches=0"};
  words.insert(words.end(), more.begin(), more.end());
  return start(setting, words);
}

RankRun RankRuns::judged(const Setting& setting, int64_t steps, int64_t seed) const {
  std::vector<std::string> words{fmt::format("seed={}", seed),
                                 fmt::format("trainer.max_steps={}", std::max<int64_t>(1, steps)),
                                 fmt::format("trainer.val_check_interval={}", std::max<int64_t>(1, steps))};
  if (steps == 0) words.emplace_back("model.optim.lr=1e-30");
  return start(setting, words);
}

}  // namespace redline::tune
