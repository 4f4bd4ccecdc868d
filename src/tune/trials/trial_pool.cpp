#include "tune/trials/trial_pool.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/memory.h"
#include "measure/statistics.h"
#include "train/cadences.h"
#include "train/signals.h"
#include "train/training_run.h"
#include "tune/trials/same_turns.h"

namespace redline::tune {

namespace {

constexpr size_t kMostAlive = 3;
constexpr double kWarmTurns = 8;           // what a first trial runs before it counts
constexpr double kHopeless = 3.0;          // times slower than the reference in a step: not worth a turn
constexpr int kCompiledSteps = 3;          // the first of a compiled trial: compiled, raced, proved twice
constexpr int kMostAgain = 4;              // turns in which further shapes were compiled
constexpr double kValidationShare = 0.01;  // below this, another setting's validation is taken as the reference's

// One line of what LibTorch or a room threw.
std::string first_line(std::string text) {
  const size_t end = text.find('\n');
  return trim(end == std::string::npos ? text : text.substr(0, end));
}

}  // namespace

QuietLog::QuietLog() : before_(static_cast<int>(log_level())) {
  if (log_level() == LogLevel::Info) set_log_level(LogLevel::Error);
}
QuietLog::~QuietLog() { set_log_level(static_cast<LogLevel>(before_)); }

// A setting that runs: its trial, and what is known of it.
struct TrialPool::Runner {
  Setting setting;
  std::unique_ptr<train::Trial> trial;
  double validation = 1;  // what a validation takes, of the reference's
  int64_t own_bytes = 0, queue_at_start = 0, warm_steps = 0;
  double samples_per_step = 1;
};

// What is alive when it ends and was not when it began belongs to the trial that ran.
class TrialPool::Account {
 public:
  explicit Account(Runner& r) : r_(r), before_(device::memory::stats().live_bytes) {}
  ~Account() { r_.own_bytes += device::memory::stats().live_bytes - before_; }
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

 private:
  Runner& r_;
  int64_t before_;
};

// Others' tensors are not this job's where the limit is the user's; the machine's own limit holds for all.
void TrialPool::set_limit(const Runner& r) const {
  const int64_t others = device::memory::stats().live_bytes - r.own_bytes;
  device::memory::set_limit(options_.memory_limit + (options_.limit_is_the_users ? std::max<int64_t>(0, others) : 0));
}

TrialPool::TrialPool(const JobSource& jobs, PoolOptions options)
    : jobs_(jobs), options_(std::move(options)), others_(device::memory::stats().live_bytes) {}
TrialPool::~TrialPool() = default;

void TrialPool::drop_all() { alive_.clear(); }

void TrialPool::set_reference(const Reference& reference) {
  reference_ = reference;
  turn_samples_ = reference.samples_per_second * options_.turn_seconds;
  reference_seconds_ = reference.samples_per_second > 0 ? 1 / reference.samples_per_second : 0;
}

std::optional<std::string> TrialPool::failure_of(const Setting& setting) const {
  const auto found = failures_.find(setting_text(setting));
  if (found == failures_.end()) return std::nullopt;
  return found->second;
}

TrialPool::Journal::Journal(std::filesystem::path file, const Setting& setting) {
  if (file.empty() || setting.empty()) return;  // the reference has run before: it is not to blame
  file_ = std::move(file);
  write_file_atomic(file_, setting_text(setting));
}
TrialPool::Journal::~Journal() {
  std::error_code ignored;
  if (!file_.empty()) std::filesystem::remove(file_, ignored);
}

// The size that is returned must have run with the longest samples, the optimiser's state and a validation.
int64_t TrialPool::probe_memory(Runner& r) {
  device::memory::begin_step();
  r.trial->run(1);
  int64_t peak = device::memory::stats().step_peak_bytes;
  peak = std::max(peak, r.trial->longest_batch_peak_bytes());
  device::memory::begin_step();
  r.trial->time_validation();
  return std::max(peak, device::memory::stats().step_peak_bytes) - others_;
}

// The first steps: the largest rows of a precision are looked at with the longest samples, and a setting that is far
// slower than the reference is known as that from here on.
void TrialPool::first_steps(Runner& r, bool probe) {
  MemoryModel& memory = memory_[precision_name(r.trial->job().precision())];
  const int64_t rows = train::rows_at_once(r.trial->job());
  try {
    if (probe) return memory.add(rows, probe_memory(r));
    const auto seconds = [&] {
      const TurnCost cost = turn_cost(r.trial->run(1).rows);
      return cost.samples > 0 ? cost.seconds / cost.samples : 0;
    };
    // A first step is cold; only one that is slow beyond that is looked at twice, and then believed.
    const double least = kHopeless * reference_seconds_;
    if (const double first = seconds(); least <= 0 || first <= least) return;
    if (const double second = seconds(); second > least) hopeless_[setting_text(r.setting)] = second;
  } catch (const c10::OutOfMemoryError&) {
    if (probe) memory.add_failure(rows);
    throw;
  } catch (const OutOfMemoryError&) {
    if (probe) memory.add_failure(rows);
    throw;
  }
}

void TrialPool::warm_up(Runner& r) {
  if (hopeless_.count(setting_text(r.setting)) != 0) return;
  const train::Job& job = r.trial->job();
  if (!warm_.emplace(precision_name(job.precision()), train::rows_at_once(job)).second) return;
  const int64_t begin = now_ns();
  while (seconds_between(begin, now_ns()) < kWarmTurns * options_.turn_seconds && !train::StopFlag::requested())
    r.trial->run(1);
}

// What a trial's steps said of packages: true when one was made, proved or raced among them.
bool TrialPool::hear_of_packages(const Runner& r, const train::TrialResult& result) {
  bool heard = false;
  for (const measure::Event& event : result.events) {
    if (!starts_with(event.kind, "compile.")) continue;
    heard = true;
    const auto* shape = event.find("shape");
    if (shape == nullptr) continue;
    auto& of_setting = compiled_[setting_text(r.setting)];
    if (event.kind == "compile.begin") of_setting.try_emplace(std::get<std::string>(*shape), 0);
    const auto known = of_setting.find(std::get<std::string>(*shape));
    if (event.kind == "compile.switch" && known != of_setting.end())
      known->second = std::get<double>(*event.find("compile_seconds"));
  }
  return heard;
}

double TrialPool::compile_seconds(const Setting& setting) const {
  double sum = 0;
  if (const auto found = compiled_.find(setting_text(setting)); found != compiled_.end())
    for (const auto& [shape, seconds] : found->second) sum += seconds;
  return sum;
}

// A package is made, proved on two pieces and raced in a trial's first steps: none of them says how fast it is. A trial
// of a compiled step that is not to be had is no trial.
void TrialPool::compile(Runner& r) {
  if (r.trial->job().trainer().compile == "false") return;
  bool used = false;
  std::string why = "nothing was compiled in its first steps";
  for (int i = 0; i < kCompiledSteps && !train::StopFlag::requested(); ++i) {
    const train::TrialResult result = r.trial->run(1);
    hear_of_packages(r, result);
    for (const measure::Event& event : result.events) {
      used = used || event.kind == "compile.switch";
      if (event.kind == "compile.refused") why = std::get<std::string>(*event.find("why"));
    }
  }
  if (!used && r.setting.contains(kCompilePath) && !train::StopFlag::requested())
    throw DeviceError("its step is not compiled: " + why);
}

TrialPool::Runner* TrialPool::find_alive(const Setting& setting) {
  const auto found = std::find_if(alive_.begin(), alive_.end(), [&](const auto& r) { return r->setting == setting; });
  if (found == alive_.end()) return nullptr;
  alive_.splice(alive_.begin(), alive_, found);
  return alive_.front().get();
}

TrialPool::Runner& TrialPool::runner(const Setting& setting) {
  if (Runner* const alive = find_alive(setting)) return *alive;
  if (!setting.empty() && !reference_ran_) start({});
  Runner& r = start(setting);
  const double factor = validation_factor(r);  // may start the reference
  Runner& mine = *find_alive(setting);
  mine.validation = factor;
  return mine;
}

// The least recently used make room; where a larger size must show that it fits, all others go.
TrialPool::Runner& TrialPool::start(const Setting& setting) {
  while (alive_.size() >= kMostAlive) alive_.pop_back();
  Setting values = setting;
  values["trainer.guards.out_of_memory"] = "false";  // a size that must be split is not a size that fits
  const auto job = train::Job::read(jobs_.registry, jobs_.with(values), jobs_.machine, train::JobOptions());
  const int64_t rows = train::rows_at_once(*job);
  const MemoryModel& memory = memory_[precision_name(job->precision())];
  const bool probe = memory.largest_that_ran() < rows;
  if (probe) {
    if (memory.infeasible(rows, options_.memory_limit))
      throw OutOfMemoryError(fmt::format("{} samples at once would need about {} of tensors, the limit is {}", rows,
                                         format_bytes(static_cast<uint64_t>(memory.predicted_bytes(rows))),
                                         format_bytes(static_cast<uint64_t>(options_.memory_limit))));
    drop_all();
  }
  auto r = std::make_unique<Runner>();
  r->setting = setting;
  train::TrialOptions options;
  options.checkpoint = false;
  {
    const Account account(*r);
    r->trial = std::make_unique<train::Trial>(jobs_.registry, jobs_.with(values), jobs_.machine, options);
    set_limit(*r);  // building a trial sets the job's own
    compile(*r);
    first_steps(*r, probe);
    warm_up(*r);
  }
  const int64_t batch = r->trial->job().train_ds().batch_size.value();
  r->samples_per_step = batch > 0 ? static_cast<double>(batch * r->trial->job().trainer().accumulate_grad_batches)
                                  : reference_.samples_per_step;  // bounded by length: no setting changes that
  reference_ran_ = reference_ran_ || setting.empty();
  alive_.push_front(std::move(r));
  settle(*alive_.front());
  return *alive_.front();
}

// What the cadences cost a step of this setting, one of which takes `step_seconds` without them: checkpoints that
// follow a clock come the more often per step the longer it is.
double TrialPool::cadence_seconds(const Runner& r, double step_seconds) const {
  measure::PerCadence seconds = reference_.cadence_seconds;
  seconds.validate *= r.validation;
  return measure::cadence_seconds(seconds, train::cadences_per_step(r.trial->settings(), r.trial->steps_per_epoch(),
                                                                    seconds.checkpoint, step_seconds));
}

// Where threads or precision may change what a validation costs and it matters, it is timed in turns with the
// reference's.
double TrialPool::validation_factor(Runner& r) {
  if (r.setting.count(kThreadsPath) + r.setting.count(kPrecisionPath) == 0) return 1;
  const double per_step = train::cadences_per_step(r.trial->settings(), r.trial->steps_per_epoch()).validate;
  if (reference_.cadence_seconds.validate * per_step <= kValidationShare * r.samples_per_step * reference_seconds_)
    return 1;
  const auto& trainer = r.trial->job().trainer();
  const auto key = std::pair(trainer.intra_op_threads.value(), precision_name(r.trial->job().precision()));
  const auto [known, unknown] = validation_factors_.try_emplace(key, 1.0);
  if (unknown) {
    Runner* const reference = find_alive({});
    Runner* const both[] = {reference != nullptr ? reference : &start({}), &r};
    double seconds[] = {0, 0};
    for (const int side : measure::interleaved_order(2, 0))
      seconds[side] += both[side]->trial->time_validation().value_or(0);
    if (seconds[0] > 0 && seconds[1] > 0) known->second = seconds[1] / seconds[0];
  }
  return known->second;
}

int64_t TrialPool::probe(const Setting& setting) {
  const QuietLog quiet;
  const Journal journal(options_.journal, setting);
  drop_all();
  Runner& r = runner(setting);
  alive_.resize(1);
  const Account account(r);
  set_limit(r);
  return probe_memory(r);
}

TrialPool::LargestBatch TrialPool::largest_batch(double seconds) {
  const QuietLog quiet;
  drop_all();
  Runner& r = runner({});
  const Account account(r);
  set_limit(r);
  r.trial->longest_batch_peak_bytes();  // with all that a run has live
  const int64_t begin = now_ns();
  LargestBatch largest{train::rows_at_once(r.trial->job()), 0, false};
  for (int64_t rows = largest.rows;; rows *= 2) {
    const int64_t before = now_ns();
    try {
      const int64_t peak = train::longest_batch_peak(r.trial->job(), r.trial->task(), rows, /*in_pieces=*/false);
      r.trial->task().module().zero_grad(/*set_to_none=*/true);
      if (peak == 0) break;  // the task has no such batch
      largest = {rows, peak - others_, false};
    } catch (const c10::OutOfMemoryError&) {
      r.trial->task().module().zero_grad(/*set_to_none=*/true);
      break;
    }
    // The next takes twice as long.
    if (seconds_between(begin, now_ns()) + 2 * seconds_between(before, now_ns()) > seconds) {
      largest.time_ended = true;
      break;
    }
  }
  return largest;
}

train::Trial& TrialPool::acquire(const Setting& setting) { return *runner(setting).trial; }

void TrialPool::settle(Runner& r) {
  int64_t last = -1;
  for (int i = 0, same = 0; i < 100 && same < 2; ++i) {
    const int64_t now = r.trial->loader_stats().queue_batches;
    same = now == last ? same + 1 : 0;
    last = now;
    if (r.trial->job().train_ds().num_workers.value() == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  r.queue_at_start = last;
}

TurnCost TrialPool::turn(Runner& r, int64_t steps) {
  const Account account(r);
  set_limit(r);
  if (r.warm_steps > 0) r.trial->run(std::min(r.warm_steps, 2 * steps));
  const train::Trial::Place start = r.trial->place();
  train::TrialResult result = r.trial->run(steps);
  // Another shape was compiled, proved or raced meanwhile, which a run pays once: the same steps again.
  for (int again = 0; again < kMostAgain && hear_of_packages(r, result) && !train::StopFlag::requested(); ++again) {
    r.trial->go_to(start);
    result = r.trial->run(steps);
  }
  const int64_t left = r.trial->loader_stats().queue_batches;
  const double micros = result.rows.empty() ? 1.0 : std::max(1, result.rows.back().micro_batches);
  // The queue fell: the loader is what limits, and the next turn must not begin with a full one.
  if (left * 2 < r.queue_at_start)
    r.warm_steps = static_cast<int64_t>(std::ceil(static_cast<double>(r.queue_at_start) / micros));
  settle(r);
  return turn_cost(result.rows);
}

// Moves both to where the same samples begin; returns how many steps a turn of each has.
std::array<int64_t, 2> TrialPool::go_to_same_samples(Runner& a, Runner& b) {
  const auto side = [](const Runner& r) {
    const train::Trial::Place now = r.trial->place();
    return TurnSide{r.samples_per_step, now.epoch, now.step, r.trial->steps_per_epoch()};
  };
  const std::array<TurnStart, 2> starts = same_turns({side(a), side(b)}, turn_samples_);
  // A loader that limits begins its turns with what it has, not with a queue filled anew.
  if (a.warm_steps == 0 && b.warm_steps == 0)
    for (size_t i = 0; i < 2; ++i) {
      Runner& r = i == 0 ? a : b;
      const train::Trial::Place start{starts[i].epoch, starts[i].step};
      if (r.trial->place() == start) continue;
      const Account account(r);
      r.trial->go_to(start);
      settle(r);
    }
  return {starts[0].steps, starts[1].steps};
}

TrialPool::Block TrialPool::run_block(const Setting& a, const Setting& b, int block) {
  const QuietLog quiet;
  for (const Setting* setting : {&a, &b})
    if (const auto known = failure_of(*setting)) return {{}, {}, *known, setting == &a};
  const Journal journal(options_.journal, b.empty() ? a : b);
  bool others =
      std::any_of(alive_.begin(), alive_.end(), [&](const auto& r) { return r->setting != a && r->setting != b; });
  for (;;) {
    const Setting* now = &a;
    try {
      runner(a);
      now = &b;
      runner(b);
      return take_turns(a, b, block);
    } catch (const std::exception& error) {
      drop_all();  // a trial that threw may stand within a step
      const bool memory = dynamic_cast<const OutOfMemoryError*>(&error) != nullptr ||
                          dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr;
      if (memory && std::exchange(others, false)) continue;  // idle trials had the memory: once more without them
      if (now->empty()) throw;                               // the job itself: nothing can be compared with it
      // A challenger is to blame for what happens while both run: `a` has run before.
      return {{}, {}, failures_[setting_text(*now)] = first_line(error.what()), now == &a};
    }
  }
}

TrialPool::Block TrialPool::take_turns(const Setting& a, const Setting& b, int block) {
  if (const auto slow = hopeless_.find(setting_text(b)); slow != hopeless_.end())
    return {reference_seconds_, slow->second, {}};
  // Probing one may have dropped the other; both are cheap to have again.
  runner(b);
  Runner* const both[] = {&runner(a), &runner(b)};
  const std::array<int64_t, 2> steps = go_to_same_samples(*both[0], *both[1]);
  TurnCost cost[2];
  for (const int side : measure::interleaved_order(2, block))
    cost[side] += turn(*both[side], steps[static_cast<size_t>(side)]);
  if (train::StopFlag::requested() || cost[0].steps == 0 || cost[1].steps == 0) return {{}, {}, "stopped"};
  // A preset may cut the samples themselves: then they are counted as they come.
  const double items = a.count(kPresetKey) + b.count(kPresetKey) > 0 ? 0 : reference_.items_per_sample;
  const auto seconds = [&](size_t side) {
    const double step = cost[side].seconds / static_cast<double>(cost[side].steps);
    return seconds_per_sample(cost[side], cadence_seconds(*both[side], step), items);
  };
  return {seconds(0), seconds(1), {}};
}

}  // namespace redline::tune
