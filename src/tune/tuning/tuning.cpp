#include "tune/tuning/tuning.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "device/profile.h"
#include "train/signals.h"
#include "train/training_run.h"
#include "tune/cards/card_store.h"
#include "tune/experiments/observe.h"
#include "tune/search/companions.h"
#include "tune/search/ledger_of_search.h"

namespace redline::tune {

std::string gain_text(const measure::RatioEstimate& e) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (e.ratio - 1), 100 * (e.interval.low - 1),
                     100 * (e.interval.high - 1));
}

void Tuning::read_job() {
  const QuietLog quiet;
  job_ = train::Job::read(jobs_.registry, jobs_.source, jobs_.machine);
  task_ = train::build_within_limit(*job_);
  view_ = view_job(*job_, *task_);
  std::string terms = request_.margin == 0.05 ? "" : fmt::format(" margin={}", request_.margin);
  if (request_.accept_not_shown) terms += " accept not-shown";
  if (request_.target) terms += fmt::format(" target={}", *request_.target);
  print_ =
      fingerprint(*job_, *task_, request_text(request_.allow, request_.memory_bytes, kept(), terms), request_.versions);
  card_path_ = request_.card_file.empty() ? card_path(*job_, print_) : request_.card_file;
}

TuneResult Tuning::tune() {
  search();
  find_largest_batch();
  prove_and_confirm();
  stop_if_asked();
  measure::Ledger ledger = ledger_of(*search_, job_->entry().guide_claims, members_);
  answer(ledger);
  return finish(std::move(ledger), combine(jobs_.base, with_companions(view_, best_)), request_.budget_seconds,
                request_.full_ledger);
}

void Tuning::measure_machine() {
  if (jobs_.machine.gemm_fp32_gflops <= 0) device::read_or_measure_rates(jobs_.machine);
}

void Tuning::observe(std::optional<double> budget_seconds) {
  say("Observing the job as it is ...");
  const auto look = [&] {
    const QuietLog quiet;
    return look_at_reference(jobs_, budget_seconds, request_.memory_bytes);
  };
  ReferenceLook found = look();
  if (found.rows_that_fit) {
    fit_memory(*found.rows_that_fit);
    found = look();
  }
  seen_ = found.seen;
  memory_limit_ = found.memory_limit;
  view_.steps_per_epoch = found.steps_per_epoch;
  view_.samples = static_cast<int64_t>(static_cast<double>(found.steps_per_epoch) * seen_.samples_per_step);
  jobs_.complete = [this](const Setting& setting) { return with_companions(view_, setting); };
  // The search has 90 blocks of four turns or more, a race three to eight; a turn below a few steps would measure the
  // switch from one trial to the other.
  make_pool(
      std::max(std::clamp(budget_seconds.value_or(0) / 600, 0.06, 0.3), std::min(0.15, 3 * seen_.bare_step_seconds())));
}

// From here on the job in pieces of `rows` is the reference.
void Tuning::fit_memory(int64_t rows) {
  const std::string limit = format_bytes(static_cast<uint64_t>(request_.memory_bytes));
  const int64_t now = train::rows_at_once(*job_);
  if (view_.bounded_by_length)
    throw ConfigError(fmt::format(
        "--memory {} does not hold the job as it is: {} samples of the longest kind at once need more, {} fit. Its "
        "batches are bounded by length; lower that bound.",
        limit, now, rows));
  Setting base = {{view_.path("micro_batch"), std::to_string(rows)}};
  if (view_.batch_statistics) {
    while (view_.effective_batch() % rows != 0) --rows;
    base = {{kBatchPath, std::to_string(rows)},
            {view_.path("micro_batch"), std::to_string(rows)},
            {kAccumulatePath, std::to_string(view_.effective_batch() / rows)}};
    if (!request_.allow.optimisation)
      throw ConfigError(fmt::format(
          "--memory {} does not hold the job as it is: {} samples of the longest kind at once need more, {} fit. The "
          "model looks across its batch, so smaller ones train differently; --allow optimisation lets them be used.",
          limit, now, rows));
    base = with_companions(view_, base);
  }
  for (const auto& [path, value] : base)
    if (view_.pinned.count(path) != 0)
      throw ConfigError(
          fmt::format("--memory {} does not hold the job as it is: {} samples of the longest kind at once need more, "
                      "{} fit. {} was "
                      "typed and is kept; leave it out or type {}.",
                      limit, now, rows, path, value));
  jobs_.base = base;
  const QuietLog quiet;
  job_ = train::Job::read(jobs_.registry, jobs_.with({}), jobs_.machine);
  view_ = view_job(*job_, *task_);
  notes_.push_back(fmt::format(
      "{} samples of the longest kind at once need more than {}: the job in pieces of {}, {}, is the reference.", now,
      limit, rows, setting_text(base)));
  say(notes_.back());
}

void Tuning::stop_if_asked() const {
  if (!train::StopFlag::requested()) return;
  throw PreemptedError(fmt::format("Stopped while tuning. Best so far, not proved: {}.", setting_text(best_)));
}

void Tuning::make_pool(double turn_seconds) {
  PoolOptions options;
  options.turn_seconds = turn_seconds;
  options.memory_limit = memory_limit_;
  options.limit_is_the_users = request_.memory_bytes > 0 || job_->trainer().memory_limit.has_value();
  options.journal = card_path_.string() + ".running";
  pool_ = std::make_unique<TrialPool>(jobs_, options);
  pool_->set_reference({seen_.samples_per_step / seen_.bare_step_seconds(), seen_.samples_per_step,
                        seen_.pieces.items_per_sample, seen_.cadence_seconds});
  std::error_code ignored;
  std::filesystem::create_directories(card_path_.parent_path(), ignored);
  if (std::filesystem::exists(options.journal, ignored)) {
    killed_ = trim(read_file(options.journal, 1 << 16));
    notes_.push_back("An earlier call ended while it tried '" + killed_ +
                     "': in this call that trial counts as failed.");
    say(notes_.back());
    std::filesystem::remove(options.journal, ignored);
  }
  if (!killed_.empty()) pool_->mark_failed(killed_, kKilled);
}

TrialPool::Block Tuning::run_block(const Setting& a, const Setting& b, int block) {
  TrialPool::Block result = pool_->run_block(a, b, block);
  if (a.empty() && result.a) reference_seen_.push_back(*result.a);
  return result;
}

std::vector<RaceRow> Tuning::race(const std::vector<Setting>& settings, int blocks, double turn_seconds) {
  jobs_.named = true;
  read_job();
  measure_machine();
  observe(std::nullopt);
  jobs_.complete = nullptr;  // what is named is raced as it is
  make_pool(turn_seconds);
  std::vector<RaceRow> rows;
  for (const Setting& setting : settings) {
    RaceRow row{setting, {}, {}, {}};
    for (int block = 0; block < blocks && row.failure.empty(); ++block) {
      const TrialPool::Block result = run_block({}, setting, block);
      row.failure = result.failure;
      if (!result.a || !result.b) break;
      row.reference.push_back(*result.a);
      row.mine.push_back(*result.b);
    }
    say(fmt::format("{}: {}", setting_text(setting),
                    row.mine.empty() ? row.failure : gain_text(measure::compare_blocks(row.reference, row.mine))));
    rows.push_back(std::move(row));
    if (train::StopFlag::requested()) break;
  }
  return rows;
}

}  // namespace redline::tune
