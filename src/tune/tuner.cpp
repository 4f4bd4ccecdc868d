#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"
#include "device/memory.h"
#include "device/rates.h"
#include "train/loop/signals.h"
#include "train/run/training_run.h"
#include "tune/card_store.h"
#include "tune/evidence.h"
#include "tune/ledger_of_search.h"
#include "tune/observe_job.h"
#include "tune/search.h"
#include "tune/trial_pool.h"

namespace redline::tune {

namespace {

// Parts of the budget: what is left after the search proves and confirms its winner.
constexpr double kSearchShare = 0.65, kCertificateShare = 0.2;
constexpr double kCalibrationShare = 0.3;  // by then the predictions are made
constexpr int kCalibrationBlocks = 4;
constexpr int kLeastConfirmingBlocks = 5, kMostConfirmingBlocks = 12;
constexpr int kMostCertificates = 4;
constexpr const char* kKilled = "the process was killed during this trial";

std::string gain_text(const measure::RatioEstimate& e) {
  return fmt::format("{:+.1f} % ({:+.1f} to {:+.1f})", 100 * (e.ratio - 1), 100 * (e.interval.low - 1),
                     100 * (e.interval.high - 1));
}

class Tuner {
 public:
  explicit Tuner(const TuneRequest& request)
      : request_(request), jobs_{request.registry, request.source, request.machine}, begin_(now_ns()) {}

  TuneResult run() {
    read_job();
    if (auto known = from_card()) return *known;
    measure_machine();
    observe(request_.budget_seconds);
    search();
    prove();
    confirm();
    return finish();
  }

  std::vector<RaceRow> race(const std::vector<Setting>& settings, int blocks, double turn_seconds);

 private:
  double spent() const { return seconds_between(begin_, now_ns()); }
  void say(const std::string& text) const {
    if (request_.say) request_.say(text);
  }

  void read_job();
  std::optional<TuneResult> from_card();
  TuneResult recheck(measure::TuneCard card);
  void measure_machine();
  void observe(std::optional<double> budget_seconds);
  void make_pool(double turn_seconds);
  TrialPool::Block run_block(const Setting& a, const Setting& b, int block);
  void calibrate();
  std::optional<double> calibrating_blocks(const Setting& a, const Setting& b);
  void search();
  void prove();
  bool take_next_best(std::vector<Setting>& rejected);
  std::vector<Candidate> members(const Setting& best) const;
  void confirm();
  measure::RatioEstimate confirming_blocks(const Setting& best, double until, int most);
  TuneResult finish();

  const TuneRequest& request_;
  JobSource jobs_;
  int64_t begin_;
  std::unique_ptr<train::Job> job_;
  std::unique_ptr<task::Task> task_;
  JobView view_;
  measure::TuneFingerprint print_;
  std::filesystem::path card_path_;
  Observed observed_;
  int64_t memory_limit_ = 0;
  double steps_per_epoch_ = 0;
  std::unique_ptr<TrialPool> pool_;
  std::optional<PlanModel> plans_;
  std::unique_ptr<Search> search_;
  Setting best_;
  std::optional<measure::Certificate> certificate_;
  std::optional<measure::RatioEstimate> confirmed_;
  double reference_seconds_ = 0, best_seconds_ = 0;  // per sample, of the confirming blocks
  std::vector<double> reference_seen_;               // the same of every block with the reference
  std::vector<std::string> notes_;
  std::string killed_;  // the setting an earlier call was trying when it ended
};

void Tuner::read_job() {
  train::JobOptions options;
  options.measure_rates = false;
  const QuietLog quiet;
  job_ = train::Job::read(jobs_.registry, jobs_.source, jobs_.machine, options);
  task_ = job_->build_task();
  view_ = view_job(*job_, *task_);
  print_ =
      fingerprint(*job_, *task_, request_text(request_.allow, request_.memory_bytes, view_.pinned), request_.versions);
  card_path_ = request_.card_file.empty() ? card_path(*job_, print_) : request_.card_file;
}

std::optional<TuneResult> Tuner::from_card() {
  if (request_.fresh) return std::nullopt;
  auto card = load_card(card_path_);
  if (!card) return std::nullopt;
  switch (measure::match_fingerprint(card->fingerprint, print_)) {
    case measure::CardMatch::Same: {
      // A card from a shorter budget that had not finished is no answer to a longer one.
      const bool finished = card->ledger.bound_left.value_or(1) <= 1.02;
      if (!finished && card->budget_seconds < request_.budget_seconds) return std::nullopt;
      TuneResult result{*card, true, false, card_path_, {}};
      for (const auto& [path, value] : card->values) result.best[path] = value;
      return result;
    }
    case measure::CardMatch::OtherMachine:
      say(card_difference(card->fingerprint, print_) + " Its answer is checked again here.");
      return recheck(*card);
    case measure::CardMatch::Other:
      say(card_difference(card->fingerprint, print_) + " The job is tuned anew.");
      return std::nullopt;
  }
  return std::nullopt;
}

// The values of a card from elsewhere, raced against the reference: kept when they help here too.
TuneResult Tuner::recheck(measure::TuneCard card) {
  measure_machine();
  observe(request_.budget_seconds);
  Setting values;
  for (const auto& [path, value] : card.values) values[path] = value;
  confirmed_ = confirming_blocks(values, std::min(request_.budget_seconds, 30.0), 6);
  if (!(confirmed_->interval.low > 1)) {
    say("The card's settings do not help on this machine; the job is tuned anew.");
    confirmed_.reset();
    search();
    prove();
    confirm();
    return finish();
  }
  card.fingerprint = print_;
  card.created = utc_timestamp();
  card.promised_ratio = promised_interval(*confirmed_, reference_seen_);
  card.ledger.best = confirmed_;
  card.notes.push_back("Tuned on another machine and confirmed on this one; its ledger is the other machine's.");
  write_file_atomic(card_path_, measure::tune_card_to_json(card));
  return {card, false, true, card_path_, values};
}

void Tuner::measure_machine() {
  if (jobs_.machine.gemm_fp32_gflops > 0) return;
  device::RateOptions quick;
  quick.seconds_per_probe = 0.05;
  device::measure_rates(jobs_.machine, quick);
  // Which precision runs when a mixed one is asked for depends on the rates.
  const QuietLog quiet;
  job_ = train::Job::read(jobs_.registry, jobs_.source, jobs_.machine);
  view_ = view_job(*job_, *task_);
}

void Tuner::observe(std::optional<double> budget_seconds) {
  say("Observing the job as it is ...");
  const JobObservation seen = [&] {
    const QuietLog quiet;
    return observe_job(jobs_, budget_seconds, request_.memory_bytes);
  }();
  observed_ = seen.observed;
  memory_limit_ = seen.memory_limit;
  steps_per_epoch_ = static_cast<double>(seen.steps_per_epoch);
  view_.samples = static_cast<int64_t>(steps_per_epoch_ * static_cast<double>(view_.effective_batch()));
  // The search has 90 blocks of four turns or more, a race three to eight; a turn below a few steps would measure the
  // switch from one trial to the other.
  make_pool(std::max(std::clamp(budget_seconds.value_or(0) / 600, 0.06, 0.3),
                     std::min(0.15, 3 * observed_.seen.step_seconds)));
}

void Tuner::make_pool(double turn_seconds) {
  PoolOptions options;
  options.turn_seconds = turn_seconds;
  options.memory_limit = memory_limit_;
  options.journal = card_path_.string() + ".running";
  pool_ = std::make_unique<TrialPool>(jobs_, options);
  pool_->set_reference(observed_.seen.samples_per_second, observed_.items_per_sample, observed_.costs);
  std::error_code ignored;
  std::filesystem::create_directories(card_path_.parent_path(), ignored);
  if (std::filesystem::exists(options.journal, ignored)) {
    killed_ = trim(read_file(options.journal, 1 << 16));
    notes_.push_back("An earlier call ended while it tried '" + killed_ + "': that trial counts as failed.");
    say(notes_.back());
    pool_->mark_failed(killed_, kKilled);
    std::filesystem::remove(options.journal, ignored);
  }
}

TrialPool::Block Tuner::run_block(const Setting& a, const Setting& b, int block) {
  TrialPool::Block result = pool_->run_block(a, b, block);
  if (a.empty() && result.a) reference_seen_.push_back(*result.a);
  return result;
}

std::optional<double> Tuner::calibrating_blocks(const Setting& a, const Setting& b) {
  std::vector<double> before, after;
  for (int block = 0; block < kCalibrationBlocks && spent() < kCalibrationShare * request_.budget_seconds; ++block) {
    const TrialPool::Block result = run_block(a, b, block);
    if (!result.a || !result.b) return std::nullopt;
    before.push_back(*result.a);
    after.push_back(*result.b);
  }
  if (after.size() < 2) return std::nullopt;
  return measure::compare_blocks(before, after).ratio;
}

// A few settings are raced before anything is predicted, since the reference alone does not say what larger pieces,
// their padding and other threads do.
void Tuner::calibrate() {
  if (const auto larger = larger_pieces(view_))
    if (const auto ratio = calibrating_blocks({}, *larger)) {
      observed_.larger = {*larger, *ratio};
      if (const auto bucketed = in_buckets(view_, request_.allow, *larger))
        if (const auto gain = calibrating_blocks(*larger, *bucketed)) observed_.bucketed = {*bucketed, *gain};
    }
  if (const auto threads = other_threads(view_, jobs_.machine))
    if (const auto ratio = calibrating_blocks({}, {{"trainer.intra_op_threads", std::to_string(*threads)}})) {
      const double step = observed_.seen.step_seconds,
                   wait = observed_.seen.phase(measure::Phase::Wait).seconds_per_step;
      observed_.parallel_share = parallel_share(step, step / *ratio, wait, view_.threads, *threads);
    }
}

void Tuner::search() {
  calibrate();
  plans_.emplace(observed_, [&](const Setting& setting) {
    const QuietLog quiet;
    return plan_shape(jobs_, *task_, setting);
  });
  std::vector<Candidate> candidates = make_candidates(view_, observed_, jobs_.machine, request_.allow, *plans_);
  for (Candidate& candidate : cadence_candidates(view_, observed_, request_.cadence_share))
    candidates.push_back(std::move(candidate));
  if (jobs_.source.file)
    for (const std::string& name : config::preset_names(*jobs_.source.file)) {
      if (jobs_.source.preset == name) continue;
      Candidate preset{
          "preset " + name, {{kPresetKey, name}}, 0, 1e9, config::Effect::Model, "preset", "preset", "-", name};
      preset.ledger_only = preset.late = true;
      candidates.push_back(std::move(preset));
    }
  SearchOptions options;
  options.budget_seconds = kSearchShare * request_.budget_seconds;
  options.plan_gain = [this](const Setting& setting) { return plans_->gain(setting); };
  search_ = std::make_unique<Search>(std::move(candidates), options);
  if (!killed_.empty()) search_->fail(killed_, kKilled);
  const auto count = std::count_if(search_->entries().begin(), search_->entries().end(),
                                   [](const Entry& e) { return e.state == EntryState::Untried; });
  say(fmt::format("The reference runs at {:.1f} samples/s; {} switches are worth a trial.",
                  observed_.seen.samples_per_second, count));
  std::string reason;
  while (const auto trial = search_->next(spent())) {
    if (trial->reason != reason) say(fmt::format("[{:.0f} s] {}", spent(), reason = trial->reason));
    const TrialPool::Block block = run_block(trial->a, trial->b, trial->block);
    search_->report(block.a, block.b, block.failure);
    if (train::StopFlag::requested()) break;
  }
  best_ = search_->best();
  if (train::StopFlag::requested())
    throw PreemptedError(fmt::format("Stopped while tuning. Best so far, not proved: {}.", setting_text(best_)));
  if (search_->out_of_budget()) {
    notes_.push_back(fmt::format("The budget ended first: what was not tried could gain up to {:+.0f} % more.",
                                 100 * search_->untested_gain()));
    say(notes_.back());
  }
}

std::vector<Candidate> Tuner::members(const Setting& best) const {
  std::vector<Candidate> found;
  for (const Entry& entry : search_->entries()) {
    const Setting& values = entry.candidate.values;
    if (!values.empty() && std::all_of(values.begin(), values.end(), [&](const auto& value) {
          const auto at = best.find(value.first);
          return at != best.end() && at->second == value.second;
        }))
      found.push_back(entry.candidate);
  }
  return found;
}

// Rejected: the switch with the strongest effect makes room for the next value of its group that won alone, or goes.
bool Tuner::take_next_best(std::vector<Setting>& rejected) {
  rejected.push_back(best_);
  const std::vector<Candidate> now = members(best_);
  if (now.empty()) return false;
  const Candidate& worst =
      *std::max_element(now.begin(), now.end(), [](const auto& a, const auto& b) { return a.effect < b.effect; });
  const Setting rest = without(best_, worst.values);
  std::vector<std::pair<double, Setting>> others = {{0, rest}};
  for (const Entry& entry : search_->entries())
    if (entry.candidate.group == worst.group && entry.state == EntryState::Better && entry.alone)
      others.emplace_back(entry.alone->ratio, combine(rest, entry.candidate.values));
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [ratio, setting] : others)
    if (std::find(rejected.begin(), rejected.end(), setting) == rejected.end()) {
      best_ = setting;
      return !best_.empty();
    }
  return false;
}

void Tuner::prove() {
  pool_->drop_all();
  std::vector<Setting> rejected;
  ReferenceCurves known;
  const double per_proof = kCertificateShare * request_.budget_seconds / 1.5;
  for (int round = 0; round < kMostCertificates && !best_.empty(); ++round) {
    const config::Effect effect = strongest_effect(members(best_));
    EvidenceOptions options;
    options.consent = request_.allow.optimisation;
    options.known = &known;
    const bool exact = effect == config::Effect::Nothing || effect == config::Effect::Numerics;
    const double runs = exact ? 4.5 : 2.5 + options.seeds;
    const double step = std::max(1e-4, observed_.seen.step_seconds);
    options.steps = std::clamp<int64_t>(static_cast<int64_t>(per_proof / runs / step), 4, exact ? 20 : 400);
    say(fmt::format("[{:.0f} s] Does '{}' train like the reference? {} steps of each ...", spent(), setting_text(best_),
                    options.steps));
    measure::Certificate certificate;
    try {
      const QuietLog quiet;
      certificate = certify(jobs_, best_, effect, options);
    } catch (const std::exception& error) {
      certificate.reason = fmt::format("The replay failed: {}", error.what());
    }
    say(fmt::format("Certificate: {}. {}", measure::certificate_kind_name(certificate.kind), certificate.reason));
    certificate_ = certificate;
    if (certificate.accepted()) return;
    notes_.push_back(fmt::format("'{}' was rejected: {}", setting_text(best_), certificate.reason));
    if (!take_next_best(rejected)) break;
  }
  best_.clear();
}

measure::RatioEstimate Tuner::confirming_blocks(const Setting& best, double until, int most) {
  std::vector<double> reference, mine;
  for (int block = 0; block < most; ++block) {
    if (static_cast<int>(mine.size()) >= kLeastConfirmingBlocks && spent() >= until) break;
    const TrialPool::Block result = run_block({}, best, block);
    if (!result.a || !result.b) {
      if (mine.empty()) throw ConfigError(fmt::format("'{}' failed: {}", setting_text(best), result.failure));
      break;
    }
    reference.push_back(*result.a);
    mine.push_back(*result.b);
  }
  reference_seconds_ = measure::median(reference);
  best_seconds_ = measure::median(mine);
  return measure::compare_blocks(reference, mine);
}

void Tuner::confirm() {
  if (best_.empty()) return;
  say(fmt::format("[{:.0f} s] Confirming '{}' with fresh blocks ...", spent(), setting_text(best_)));
  confirmed_ = confirming_blocks(best_, request_.budget_seconds, kMostConfirmingBlocks);
  say(fmt::format("Against the reference: {}", gain_text(*confirmed_)));
  if (confirmed_->interval.low > 1) return;
  notes_.push_back(fmt::format("'{}' seemed faster in the search, but fresh blocks did not confirm it ({}).",
                               setting_text(best_), gain_text(*confirmed_)));
  best_.clear();
}

TuneResult Tuner::finish() {
  measure::TuneCard card;
  card.created = utc_timestamp();
  card.fingerprint = print_;
  for (const auto& [path, value] : best_) card.values.emplace_back(path, value);
  card.ledger = ledger_of(*search_, view_.task, best_);
  const double cadence = cadence_seconds_per_step(observed_.costs, observed_.rates);
  const double observed_rate = observed_.seen.samples_per_step / std::max(1e-9, observed_.seen.step_seconds + cadence);
  const double before = reference_seconds_ > 0 ? 1 / reference_seconds_ : observed_rate;
  const double after = best_.empty() || best_seconds_ <= 0 ? before : 1 / best_seconds_;
  card.ledger.baseline_samples_per_second = before;
  card.ledger.best_samples_per_second = after;
  card.ledger.tuning_seconds = spent();
  card.budget_seconds = request_.budget_seconds;
  card.promised_ratio = {1, 1};
  if (!best_.empty()) {
    card.ledger.best = confirmed_;
    card.promised_ratio = promised_interval(*confirmed_, reference_seen_);
    card.certificate = certificate_;
    card.peak_tensor_bytes = pool_->peak_bytes(best_);
  } else {
    measure::Certificate same;
    same.kind = measure::CertificateKind::Identical;
    same.reason = "Nothing was changed.";
    card.certificate = same;
  }
  if (card.peak_tensor_bytes == 0) card.peak_tensor_bytes = pool_->peak_bytes({});
  card.break_even = {spent(), 0, before, after, samples_of_run(*job_, static_cast<int64_t>(steps_per_epoch_))};
  card.notes = notes_;
  write_file_atomic(card_path_, measure::tune_card_to_json(card));
  return {card, false, false, card_path_, best_};
}

std::vector<RaceRow> Tuner::race(const std::vector<Setting>& settings, int blocks, double turn_seconds) {
  read_job();
  measure_machine();
  observe(std::nullopt);
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

}  // namespace

TuneResult tune_job(const TuneRequest& request) { return Tuner(request).run(); }

std::vector<RaceRow> race_settings(const TuneRequest& request, const std::vector<Setting>& settings, int blocks,
                                   double turn_seconds) {
  return Tuner(request).race(settings, blocks, turn_seconds);
}

}  // namespace redline::tune
