#include "tune/trial_pool.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/memory.h"
#include "measure/statistics.h"
#include "train/loop/signals.h"
#include "train/run/training_run.h"

namespace redline::tune {

namespace {

constexpr size_t kMostAlive = 3;
constexpr double kHopeless = 3.0;          // times slower than the reference in a step: not worth a turn
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

struct TrialPool::Running {
  Setting setting;
  std::unique_ptr<train::Trial> trial;
  double cadence = 0;  // seconds per step
  int64_t own_bytes = 0, queue_at_start = 0, warm_steps = 0;
  double samples_per_step = 1;
};

TrialPool::TrialPool(const JobSource& jobs, PoolOptions options) : jobs_(jobs), options_(std::move(options)) {}
TrialPool::~TrialPool() = default;

void TrialPool::drop_all() { alive_.clear(); }

void TrialPool::set_reference(double samples_per_second, double items_per_sample, const CadenceCosts& costs) {
  turn_samples_ = samples_per_second * options_.turn_seconds;
  reference_seconds_ = samples_per_second > 0 ? 1 / samples_per_second : 0;
  items_per_sample_ = items_per_sample;
  costs_ = costs;
}

int64_t TrialPool::peak_bytes(const Setting& setting) const {
  const auto found = peaks_.find(setting_text(setting));
  return found != peaks_.end() ? found->second : 0;
}

std::optional<std::string> TrialPool::failure_of(const Setting& setting) const {
  const auto found = failures_.find(setting_text(setting));
  if (found == failures_.end()) return std::nullopt;
  return found->second;
}

void TrialPool::journal(const std::string& text) const {
  if (options_.journal.empty()) return;
  std::error_code ignored;
  if (text.empty())
    std::filesystem::remove(options_.journal, ignored);
  else
    write_file_atomic(options_.journal, text);
}

// The size that is returned must have run with the longest samples, the optimiser's state and a validation.
void TrialPool::probe_memory(Running& r, int64_t live_before) {
  device::memory::begin_step();
  r.trial->run(1);
  int64_t peak = r.trial->longest_batch_peak_bytes();
  device::memory::begin_step();
  r.trial->time_validation();
  peak = std::max(peak, device::memory::stats().step_peak_bytes) - live_before;
  const int64_t rows = train::rows_at_once(r.trial->job());
  memory_.add(rows, peak);
  largest_rows_ = std::max(largest_rows_, rows);
  peaks_[setting_text(r.setting)] = peak;
}

TrialPool::Running& TrialPool::running(const Setting& setting) {
  const auto found = std::find_if(alive_.begin(), alive_.end(), [&](const auto& r) { return r->setting == setting; });
  if (found != alive_.end()) {
    alive_.splice(alive_.begin(), alive_, found);
    return *alive_.front();
  }
  while (alive_.size() >= kMostAlive) alive_.pop_back();
  Setting values = setting;
  values["trainer.guards.out_of_memory"] = "false";  // a size that must be split is not a size that fits
  train::JobOptions read_options;
  const auto job = train::Job::read(jobs_.registry, jobs_.with(values), jobs_.machine, read_options);
  const int64_t rows = train::rows_at_once(*job);
  const bool probe = rows > largest_rows_;
  if (probe) {
    if (memory_.infeasible(rows, options_.memory_limit))
      throw OutOfMemoryError(fmt::format("{} samples at once would need about {} of tensors, the limit is {}", rows,
                                         format_bytes(static_cast<uint64_t>(memory_.predicted_bytes(rows))),
                                         format_bytes(static_cast<uint64_t>(options_.memory_limit))));
    drop_all();
  }
  journal(setting_text(setting));
  const int64_t live = device::memory::stats().live_bytes;
  auto r = std::make_unique<Running>();
  r->setting = setting;
  train::TrialOptions options;
  options.checkpoint = false;
  r->trial = std::make_unique<train::Trial>(jobs_.registry, jobs_.with(values), jobs_.machine, options);
  if (options_.memory_limit > 0) device::memory::set_limit(options_.memory_limit + live);
  double first_step = 0;
  try {
    if (probe) {
      probe_memory(*r, live);
    } else {
      const TurnCost first = turn_cost(r->trial->run(1).rows);
      first_step = first.samples > 0 ? first.seconds / first.samples : 0;
    }
    // A first step is cold; only one that is slow beyond that is looked at twice, and then believed.
    if (first_step > kHopeless * reference_seconds_ && reference_seconds_ > 0) {
      const TurnCost second = turn_cost(r->trial->run(1).rows);
      const double seconds = second.samples > 0 ? second.seconds / second.samples : 0;
      if (seconds > kHopeless * reference_seconds_) hopeless_[setting_text(setting)] = seconds;
    }
  } catch (const std::exception&) {
    if (probe) memory_.add_failure(rows);
    throw;
  }
  const train::LoopSettings& s = r->trial->settings();
  const auto rates = cadence_rates(s.cadence, r->trial->steps_per_epoch(), s.save_on_validation,
                                   s.save_interval.every_steps.value_or(0));
  CadenceCosts costs = costs_;
  r->samples_per_step = static_cast<double>(std::max<int64_t>(1, r->trial->job().train_ds().batch_size.value()) *
                                            r->trial->job().trainer().accumulate_grad_batches);
  const bool moves_validation =
      setting.count("trainer.intra_op_threads") != 0 || setting.count("trainer.precision") != 0;
  if (moves_validation && turn_samples_ > 0 &&
      costs.validate * rates.validate > kValidationShare * options_.turn_seconds * r->samples_per_step / turn_samples_)
    costs.validate = r->trial->time_validation().value_or(costs.validate);
  r->cadence = cadence_seconds_per_step(costs, rates);
  r->own_bytes = device::memory::stats().live_bytes - live;
  journal("");
  alive_.push_front(std::move(r));
  settle(*alive_.front());
  return *alive_.front();
}

train::Trial& TrialPool::acquire(const Setting& setting) { return *running(setting).trial; }

void TrialPool::settle(Running& r) {
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

TurnCost TrialPool::turn(Running& r) {
  // Others' tensors are not this job's.
  if (options_.memory_limit > 0)
    device::memory::set_limit(options_.memory_limit +
                              std::max<int64_t>(0, device::memory::stats().live_bytes - r.own_bytes));
  const auto steps = std::max<int64_t>(1, std::llround(turn_samples_ / r.samples_per_step));
  if (r.warm_steps > 0) r.trial->run(std::min(r.warm_steps, 2 * steps));
  const auto result = r.trial->run(steps);
  const int64_t left = r.trial->loader_stats().queue_batches;
  const double micros = result.rows.empty() ? 1.0 : std::max(1, result.rows.back().micro_batches);
  // The queue fell: the loader is what limits, and the next turn must not begin with a full one.
  if (left * 2 < r.queue_at_start)
    r.warm_steps = static_cast<int64_t>(std::ceil(static_cast<double>(r.queue_at_start) / micros));
  settle(r);
  return turn_cost(result.rows);
}

TrialPool::Block TrialPool::run_block(const Setting& a, const Setting& b, int block) {
  Block result;
  const QuietLog quiet;
  TurnCost cost[2];
  Running* both[2] = {nullptr, nullptr};
  for (int side = 0; side < 2; ++side) {
    const Setting& setting = side == 0 ? a : b;
    std::string why;
    if (const auto known = failure_of(setting)) {
      why = *known;
    } else {
      try {
        running(setting);
      } catch (const std::exception& error) {
        why = first_line(error.what());
      }
    }
    if (!why.empty()) {
      failures_[setting_text(setting)] = why;
      journal("");
      result.failure = why;
      return result;
    }
  }
  if (const auto slow = hopeless_.find(setting_text(b)); slow != hopeless_.end()) {
    result.a = reference_seconds_;
    result.b = slow->second;
    return result;
  }
  // Probing one may have dropped the other; both are cheap to have again.
  both[1] = &running(b);
  both[0] = &running(a);
  both[1] = &running(b);
  if (block == 0 && both[0]->trial->steps_per_epoch() == both[1]->trial->steps_per_epoch() &&
      both[0]->trial->job().precision() == both[1]->trial->job().precision()) {
    both[1]->trial->load(both[0]->trial->state());  // the same samples from here on
    settle(*both[1]);
  }
  try {
    for (const int side : measure::interleaved_order(2, block)) cost[side] += turn(*both[side]);
  } catch (const std::exception& error) {
    result.failure = first_line(error.what());
    failures_[setting_text(b)] = result.failure;
    return result;
  }
  if (train::StopFlag::requested() || cost[0].steps == 0 || cost[1].steps == 0) {
    result.failure = "stopped";
    return result;
  }
  // A preset may cut the samples themselves: then they are counted as they come.
  const double items = a.count(kPresetKey) + b.count(kPresetKey) > 0 ? 0 : items_per_sample_;
  result.a = seconds_per_sample(cost[0], both[0]->cadence, items);
  result.b = seconds_per_sample(cost[1], both[1]->cadence, items);
  return result;
}

}  // namespace redline::tune
