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
#include "tune/companions.h"
#include "tune/evidence.h"
#include "tune/fallback.h"
#include "tune/ledger_of_search.h"
#include "tune/observe_job.h"
#include "tune/search.h"
#include "tune/trial_pool.h"

namespace redline::tune {

namespace {

// Parts of the budget: what the search leaves proves and confirms its winner, which takes at least some steps.
constexpr double kProofShare = 0.2, kConfirmShare = 0.15, kLeastSearchShare = 0.3;
constexpr double kMostProofShare = 0.35;  // a switch whose proof takes longer is not tried
constexpr double kLargestBatchShare = 0.1;
constexpr double kCalibrationShare = 0.35;  // by then the predictions are made
constexpr int kExactProofRuns = 4;
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
    return tune();
  }

  std::vector<RaceRow> race(const std::vector<Setting>& settings, int blocks, double turn_seconds);

 private:
  double spent() const { return seconds_between(begin_, now_ns()); }
  void say(const std::string& text) const {
    if (request_.say) request_.say(text);
  }

  void read_job();
  std::set<std::string> kept() const;
  std::optional<TuneResult> from_card();
  TuneResult tune();
  TuneResult recheck(measure::TuneCard card);
  bool holds_here(const measure::TuneCard& card, const Setting& values);
  void measure_machine();
  void observe(std::optional<double> budget_seconds);
  void fit_memory(int64_t rows);
  void make_pool(double turn_seconds);
  void stop_if_asked() const;
  TrialPool::Block run_block(const Setting& a, const Setting& b, int block);
  void calibrate();
  std::optional<double> calibrating_blocks(const Setting& a, const Setting& b);
  void search();
  std::vector<Candidate> candidates() const;
  double samples_factor(const Setting& setting) const;
  double curve_proof_seconds(const Setting& setting) const;
  double confirm_seconds() const;
  EvidenceOptions proof_options(const std::vector<Candidate>& members) const;
  void prove();
  void choose(std::vector<size_t> members);
  std::vector<Candidate> chosen() const;
  void find_largest_batch();
  void confirm();
  std::optional<measure::RatioEstimate> confirming_blocks(const Setting& best, double until, int most);
  TuneResult finish(measure::Ledger ledger, const Setting& values);

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
  std::vector<size_t> members_;  // of the search's entries: what is proved and confirmed
  Setting best_;                 // their values
  ReferenceCurves curves_;
  std::optional<measure::Certificate> certificate_;
  int64_t peak_bytes_ = 0;
  std::optional<measure::LargestBatch> largest_;
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
  print_ = fingerprint(*job_, *task_, request_text(request_.allow, request_.memory_bytes, kept()), request_.versions);
  card_path_ = request_.card_file.empty() ? card_path(*job_, print_) : request_.card_file;
}

// Typed options that bind the tuner's hands. Where a run is written to, or what it is called, does not.
std::set<std::string> Tuner::kept() const {
  std::set<std::string> paths;
  for (const std::string& path : view_.pinned)
    if (path == kSavePath || (path != "name" && !starts_with(path, "exp_manager"))) paths.insert(path);
  return paths;
}

std::optional<TuneResult> Tuner::from_card() {
  if (request_.fresh) return std::nullopt;
  auto card = load_card(card_path_);
  if (!card) return std::nullopt;
  switch (measure::match_fingerprint(card->fingerprint, print_)) {
    case measure::CardMatch::Same: {
      // A card from a shorter budget that had not finished is no answer to a longer one.
      const bool finished = card->ledger.bound_left && *card->ledger.bound_left <= 1.02;
      if (request_.full_ledger && !card->full_ledger) return std::nullopt;
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

TuneResult Tuner::tune() {
  search();
  find_largest_batch();
  prove();
  confirm();
  stop_if_asked();
  measure::Ledger ledger = ledger_of(*search_, view_.task, members_);
  return finish(std::move(ledger), combine(jobs_.base, with_companions(view_, best_)));
}

// The values of a card from elsewhere, proved and raced against the reference: kept when they help here too. Only that
// is known here; the ledger stays the other machine's.
TuneResult Tuner::recheck(measure::TuneCard card) {
  measure_machine();
  observe(request_.budget_seconds);
  Setting values;
  for (const auto& [path, value] : card.values) values[path] = value;
  if (values.empty() || !holds_here(card, values)) {
    if (!values.empty()) say("The card's settings do not hold on this machine; the job is tuned anew.");
    confirmed_.reset();
    certificate_.reset();
    return tune();
  }
  notes_.push_back("Tuned on another machine, proved and confirmed on this one; its ledger is the other machine's.");
  TuneResult result = finish(std::move(card.ledger), values);
  result.rechecked = true;
  return result;
}

bool Tuner::holds_here(const measure::TuneCard& card, const Setting& values) {
  const auto complete = std::exchange(jobs_.complete, nullptr);  // a card's values are whole
  bool holds = false;
  try {
    // The strongest effect the other machine's proof was about.
    Candidate all{"card", values};
    if (card.certificate)
      for (const auto effect : {config::Effect::Numerics, config::Effect::Order, config::Effect::Optimisation})
        for (const std::string& name : card.certificate->effects)
          if (name == config::effect_name(effect)) all.effect = effect;
    const QuietLog quiet;
    const TrialPool::Journal journal(card_path_.string() + ".running", values);
    if (const auto known = pool_->failure_of(values)) throw Error(ExitCode::Failure, *known);
    certificate_ = certify(jobs_, {all}, proof_options({all})).certificate;
    if (certificate_->accepted()) {
      peak_bytes_ = pool_->probe(values);
      best_ = values;
      confirmed_ = confirming_blocks(values, std::min(request_.budget_seconds, 30.0), 6);
      holds = confirmed_ && confirmed_->interval.low > 1;
    }
  } catch (const std::exception& error) {
    say(fmt::format("They fail here: {}", error.what()));
  }
  jobs_.complete = complete;
  stop_if_asked();
  if (!holds) best_.clear();
  return holds;
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
  const auto look = [&] {
    const QuietLog quiet;
    return observe_job(jobs_, budget_seconds, request_.memory_bytes);
  };
  JobObservation seen = look();
  if (seen.rows_that_fit) {
    fit_memory(*seen.rows_that_fit);
    seen = look();
  }
  observed_ = seen.observed;
  memory_limit_ = seen.memory_limit;
  steps_per_epoch_ = static_cast<double>(seen.steps_per_epoch);
  view_.samples = static_cast<int64_t>(steps_per_epoch_ * observed_.seen.samples_per_step);
  view_.steps_per_epoch = seen.steps_per_epoch;
  jobs_.complete = [this](const Setting& setting) { return with_companions(view_, setting); };
  // The search has 90 blocks of four turns or more, a race three to eight; a turn below a few steps would measure the
  // switch from one trial to the other.
  make_pool(std::max(std::clamp(budget_seconds.value_or(0) / 600, 0.06, 0.3),
                     std::min(0.15, 3 * observed_.seen.step_seconds)));
}

// From here on the job in pieces of `rows` is the reference.
void Tuner::fit_memory(int64_t rows) {
  const std::string limit = format_bytes(static_cast<uint64_t>(request_.memory_bytes));
  const int64_t now = train::rows_at_once(*job_);
  Setting base = {{kMicroPath, std::to_string(rows)}};
  if (view_.batch_statistics) {
    while (view_.effective_batch() % rows != 0) --rows;
    base = {{kBatchPath, std::to_string(rows)},
            {kMicroPath, std::to_string(rows)},
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

void Tuner::stop_if_asked() const {
  if (!train::StopFlag::requested()) return;
  throw PreemptedError(fmt::format("Stopped while tuning. Best so far, not proved: {}.", setting_text(best_)));
}

void Tuner::make_pool(double turn_seconds) {
  PoolOptions options;
  options.turn_seconds = turn_seconds;
  options.memory_limit = memory_limit_;
  options.limit_is_the_users = request_.memory_bytes > 0;
  options.journal = card_path_.string() + ".running";
  pool_ = std::make_unique<TrialPool>(jobs_, options);
  pool_->set_reference({observed_.seen.samples_per_second, observed_.seen.samples_per_step, observed_.items_per_sample,
                        observed_.costs});
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
      if (const auto precision = other_precision(view_, jobs_.machine, request_.allow)) {
        const Setting precise = combine(*larger, *precision);
        if (const auto gain = calibrating_blocks(*larger, precise)) observed_.precise = {precise, *gain};
      }
    }
  if (const auto threads = other_threads(view_, jobs_.machine))
    if (const auto ratio = calibrating_blocks({}, {{kThreadsPath, std::to_string(*threads)}})) {
      const double step = observed_.seen.step_seconds,
                   wait = observed_.seen.phase(measure::Phase::Wait).seconds_per_step;
      observed_.parallel_share = parallel_share(step, step / *ratio, wait, view_.threads, *threads);
    }
}

// How many of the reference's steps hold the samples of one step under a setting.
double Tuner::samples_factor(const Setting& setting) const {
  const auto number = [&](const char* path, int64_t otherwise) {
    const auto found = setting.find(path);
    return found == setting.end() ? otherwise : std::stoll(found->second);
  };
  const int64_t batch = number(kBatchPath, view_.batch_size) * number(kAccumulatePath, view_.accumulate);
  return static_cast<double>(batch) / static_cast<double>(view_.effective_batch());
}

double Tuner::curve_proof_seconds(const Setting& setting) const {
  return curve_runs({}) * static_cast<double>(least_curve_steps(samples_factor(setting))) * observed_.seen.step_seconds;
}

double Tuner::confirm_seconds() const {
  return std::max(kConfirmShare * request_.budget_seconds, 4 * kLeastConfirmingBlocks * observed_.seen.step_seconds);
}

std::vector<Candidate> Tuner::candidates() const {
  std::vector<Candidate> all = make_candidates(view_, observed_, jobs_.machine, request_.allow, *plans_);
  for (Candidate& candidate : cadence_candidates(view_, observed_, request_.cadence_share))
    all.push_back(std::move(candidate));
  // What could not be proved within the budget is not worth a race.
  for (Candidate& c : all) {
    if (!c.not_tried.empty() || proved_step_by_step(c)) continue;
    const double seconds = curve_proof_seconds(c.values);
    if (seconds > kMostProofShare * request_.budget_seconds)
      c.not_tried = fmt::format("its proof alone takes about {}, too long for a budget of {}", format_seconds(seconds),
                                format_seconds(request_.budget_seconds));
  }
  if (!jobs_.source.file) return all;
  for (const std::string& name : config::preset_names(*jobs_.source.file)) {
    if (jobs_.source.preset == name) continue;
    Candidate preset{
        "preset " + name, {{kPresetKey, name}}, 0, 1e9, config::Effect::Model, "preset", "preset", "-", name};
    preset.ledger_only = preset.late = true;
    all.push_back(std::move(preset));
  }
  return all;
}

void Tuner::search() {
  calibrate();
  plans_.emplace(observed_, [&](const Setting& setting) {
    const QuietLog quiet;
    return plan_shape(jobs_, *task_, setting);
  });
  SearchOptions options;
  const double budget = request_.budget_seconds, step = observed_.seen.step_seconds;
  std::vector<Candidate> all = candidates();
  double proof = std::max(kProofShare * budget, kExactProofRuns * 4 * step);
  for (const Candidate& c : all)
    if (c.not_tried.empty() && !c.ledger_only && !proved_step_by_step(c))
      proof = std::max(proof, curve_proof_seconds(c.values));
  const double largest = request_.memory_bytes > 0 ? kLargestBatchShare * budget : 0;
  options.budget_seconds = std::max(kLeastSearchShare * budget, budget - proof - confirm_seconds() - largest);
  options.full_ledger = request_.full_ledger;
  options.plan_gain = [this](const Setting& setting) { return plans_->gain(setting); };
  search_ = std::make_unique<Search>(std::move(all), options);
  if (!killed_.empty()) search_->fail(killed_, kKilled);
  const auto count = std::count_if(search_->entries().begin(), search_->entries().end(),
                                   [](const Entry& e) { return e.state == EntryState::Untried; });
  say(fmt::format("The reference runs at {:.1f} samples/s; {} switches are worth a trial.",
                  observed_.seen.samples_per_second, count));
  std::string reason;
  while (const auto trial = search_->next(spent())) {
    if (trial->reason != reason) say(fmt::format("[{:.0f} s] {}", spent(), reason = trial->reason));
    const TrialPool::Block block = run_block(trial->a, trial->b, trial->block);
    best_ = search_->best();
    stop_if_asked();
    search_->report(block.a, block.b, block.failure);
  }
  choose(search_->members());
  if (search_->out_of_budget()) {
    std::string note = fmt::format("The budget ended first: what was not tried could gain up to {:+.0f} % more",
                                   100 * search_->untested_gain());
    if (const auto unknown = search_->unknown(); !unknown.empty())
      note += fmt::format(", and nothing is known of {}", join(unknown, ", "));
    notes_.push_back(note + ".");
    say(notes_.back());
  }
}

void Tuner::choose(std::vector<size_t> members) {
  members_ = std::move(members);
  best_.clear();
  for (const size_t member : members_) best_ = combine(best_, search_->entries()[member].candidate.values);
}

std::vector<Candidate> Tuner::chosen() const {
  std::vector<Candidate> all;
  for (const size_t member : members_) all.push_back(search_->entries()[member].candidate);
  return all;
}

// With a memory limit, users also ask what would fit.
void Tuner::find_largest_batch() {
  if (request_.memory_bytes <= 0 || view_.bounded_by_length) return;
  try {
    const TrialPool::LargestBatch found = pool_->largest_batch(kLargestBatchShare * request_.budget_seconds);
    if (found.peak_bytes > 0) largest_ = {found.rows, found.peak_bytes, memory_limit_, found.time_ended};
  } catch (const std::exception& error) {
    notes_.push_back(fmt::format("The largest batch that fits is not known: {}", error.what()));
  }
}

// As many steps as the budget pays for.
EvidenceOptions Tuner::proof_options(const std::vector<Candidate>& members) const {
  EvidenceOptions options;
  options.consent = request_.allow.optimisation;
  const double seconds = kProofShare * request_.budget_seconds / 1.5;
  const double step = std::max(1e-4, observed_.seen.step_seconds);
  Setting winner;
  for (const Candidate& member : members) winner = combine(winner, member.values);
  const auto paid = [&](double share, int runs) { return static_cast<int64_t>(share * seconds / runs / step); };
  const bool exact = std::all_of(members.begin(), members.end(), proved_step_by_step);
  options.steps = std::clamp<int64_t>(paid(exact ? 1.0 : 0.2, kExactProofRuns), 4, 20);
  options.curve_steps = std::clamp<int64_t>(paid(0.8, curve_runs(options)), least_curve_steps(samples_factor(winner)),
                                            std::max<int64_t>(400, least_curve_steps(samples_factor(winner))));
  return options;
}

void Tuner::prove() {
  pool_->drop_all();
  std::vector<Rejection> rejected;
  for (int round = 0; round < kMostCertificates && !best_.empty(); ++round) {
    EvidenceOptions options = proof_options(chosen());
    options.known = &curves_;
    say(fmt::format("[{:.0f} s] Does '{}' train like the reference? ...", spent(), setting_text(best_)));
    Proof proof;
    Rejection rejection{members_, Rejection::Reason::DoesNotRun};
    try {
      const QuietLog quiet;
      const TrialPool::Journal journal(card_path_.string() + ".running", best_);
      if (const auto known = pool_->failure_of(best_)) throw Error(ExitCode::Failure, *known);
      proof = certify(jobs_, chosen(), options);
      if (proof.certificate.accepted())
        peak_bytes_ = pool_->probe(best_);
      else
        rejection.reason = proof.failed_step_by_step ? Rejection::Reason::StepByStep : Rejection::Reason::Curve;
    } catch (const std::exception& error) {
      proof.certificate = {};
      proof.certificate.reason = fmt::format("It does not run: {}", error.what());
    }
    stop_if_asked();
    say(fmt::format("Certificate: {}. {}", measure::certificate_kind_name(proof.certificate.kind),
                    proof.certificate.reason));
    certificate_ = proof.certificate;
    if (certificate_->accepted()) return;
    notes_.push_back(fmt::format("'{}' was rejected: {}", setting_text(best_), certificate_->reason));
    rejected.push_back(std::move(rejection));
    const bool last = round + 2 == kMostCertificates || spent() > request_.budget_seconds - confirm_seconds();
    choose(next_best(search_->entries(), rejected, last));
  }
  choose({});
}

std::optional<measure::RatioEstimate> Tuner::confirming_blocks(const Setting& best, double until, int most) {
  std::vector<double> reference, mine;
  for (int block = 0; block < most; ++block) {
    if (static_cast<int>(mine.size()) >= kLeastConfirmingBlocks && spent() >= until) break;
    const TrialPool::Block result = run_block({}, best, block);
    if (!result.a || !result.b) {
      notes_.push_back(fmt::format("'{}' failed while it was confirmed: {}", setting_text(best), result.failure));
      return std::nullopt;
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
  stop_if_asked();
  if (confirmed_) {
    say(fmt::format("Against the reference: {}", gain_text(*confirmed_)));
    if (confirmed_->interval.low > 1) return;
    notes_.push_back(fmt::format("'{}' seemed faster in the search, but fresh blocks did not confirm it ({}).",
                                 setting_text(best_), gain_text(*confirmed_)));
  }
  choose({});
}

// `values`: all that differs from the user's job.
TuneResult Tuner::finish(measure::Ledger ledger, const Setting& values) {
  measure::TuneCard card;
  card.created = utc_timestamp();
  card.fingerprint = print_;
  for (const auto& [path, value] : values) card.values.emplace_back(path, value);
  card.ledger = std::move(ledger);
  const double cadence = cadence_seconds_per_step(observed_.costs, observed_.rates);
  const double observed_rate = observed_.seen.samples_per_step / std::max(1e-9, observed_.seen.step_seconds + cadence);
  const double before = reference_seconds_ > 0 ? 1 / reference_seconds_ : observed_rate;
  const double after = best_.empty() || best_seconds_ <= 0 ? before : 1 / best_seconds_;
  card.ledger.baseline_samples_per_second = before;
  card.ledger.best_samples_per_second = after;
  card.ledger.tuning_seconds = spent();
  card.budget_seconds = request_.budget_seconds;
  card.full_ledger = request_.full_ledger;
  card.promised_ratio = {1, 1};
  card.ledger.best.reset();
  if (!best_.empty()) {
    card.ledger.best = confirmed_;
    card.promised_ratio = promised_interval(*confirmed_, reference_seen_);
    card.certificate = certificate_;
    card.peak_tensor_bytes = peak_bytes_;
  } else {
    measure::Certificate same;
    same.kind = values.empty() ? measure::CertificateKind::Identical : measure::CertificateKind::WithinNoise;
    same.reason = values.empty() ? "Nothing was changed." : "The step is only cut into pieces that fit the memory.";
    if (!values.empty() && view_.batch_statistics) {
      same.kind = measure::CertificateKind::TrainsDifferently;
      same.reason =
          "The batch is smaller, as the memory limit asks; the reference does not fit, so nothing was compared.";
    }
    card.certificate = same;
    try {
      card.peak_tensor_bytes = pool_->probe({});
    } catch (const std::exception&) {  // on the edge of its memory: nothing is claimed
    }
  }
  card.largest_batch = largest_;
  const double samples = samples_of_run(*job_, static_cast<int64_t>(steps_per_epoch_), observed_.seen.samples_per_step);
  std::vector<double> logs;
  for (const double seconds : reference_seen_) logs.push_back(std::log(seconds));
  const double spread = logs.size() < 3 ? 0 : std::expm1(1.96 * measure::robust_spread(logs));
  card.break_even = {spent(), 0, before, after, samples, observed_.seen.samples_per_step * samples_factor(best_),
                     spread};
  card.notes = notes_;
  write_file_atomic(card_path_, measure::tune_card_to_json(card));
  return {card, false, false, card_path_, values};
}

std::vector<RaceRow> Tuner::race(const std::vector<Setting>& settings, int blocks, double turn_seconds) {
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

}  // namespace

TuneResult tune_job(const TuneRequest& request) { return Tuner(request).run(); }

std::vector<RaceRow> race_settings(const TuneRequest& request, const std::vector<Setting>& settings, int blocks,
                                   double turn_seconds) {
  return Tuner(request).race(settings, blocks, turn_seconds);
}

}  // namespace redline::tune
