// The supervisor is a second thread because the first may itself be stuck: a store whose holder is stopped does not
// answer, and its client waits without limit.
#include "train/ranks/rank_watch.h"

#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/time.h"

namespace redline::train {

namespace {

constexpr double kLooksPerTimeout = 8.0;
constexpr double kEndSeconds = 1.0;      // that the main thread has to notice by itself
constexpr double kUnwindSeconds = 10.0;  // and to put things away once it has
constexpr const char* kHowToContinue = " Run the same command again to continue from the newest checkpoint.";

std::chrono::duration<double> duration(double seconds) { return std::chrono::duration<double>(seconds); }

}  // namespace

RankWatch::RankWatch(c10::intrusive_ptr<c10d::Store> store, const Launch& launch, double peer_seconds)
    : store_(std::move(store)),
      launch_(launch),
      look_seconds_(std::clamp(peer_seconds / kLooksPerTimeout, 0.05, 5.0)),
      peer_seconds_(peer_seconds),
      table_(launch.ranks.rank, launch.ranks.world,
             std::max(1, static_cast<int>(std::ceil(peer_seconds / look_seconds_))), look_seconds_),
      known_(static_cast<size_t>(launch.ranks.world), false) {
  store_->set(kPatienceKey, fmt::format("{}", peer_seconds));  // for the launcher, which knows no job
  tell(Beat::State::Running, "", 0);
  beats_ = std::thread([this] { run(); });
  supervisor_ = std::thread([this] { supervise(); });
}

RankWatch::~RankWatch() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  supervisor_.join();
  beats_.join();
}

void RankWatch::on_end(std::function<void(const Loss&)> told) {
  const std::scoped_lock lock(mutex_);
  told_ = std::move(told);
}

std::optional<Loss> RankWatch::lost() const {
  const std::scoped_lock lock(mutex_);
  return lost_;
}

void RankWatch::tell(Beat::State state, const std::string& reason, int exit_code) {
  const std::scoped_lock lock(telling_);
  if (ended_) return;
  ended_ = state != Beat::State::Running;
  const measure::StepClock* clock = clock_.load();
  const std::string phase =
      clock != nullptr ? std::string(measure::phase_name(clock->current())) : std::string(phase_.load());
  const Beat beat{++count_, state, step_.load(std::memory_order_relaxed), phase, reason, exit_code};
  store_->set(beat_key(launch_.ranks.rank), beat.text());
}

void RankWatch::look() {
  const std::scoped_lock lock(telling_);
  if (store_->check({"gone"})) {
    const std::string gone = store_->get_to_str("gone");
    const size_t tab = gone.find('\t');
    if (tab != std::string::npos)
      table_.gone(static_cast<int>(parse_int(gone.substr(0, tab)).value_or(-1)), gone.substr(tab + 1));
  }
  for (int r = 0; r < launch_.ranks.world; ++r) {
    if (r == launch_.ranks.rank) continue;
    const auto at = static_cast<size_t>(r);
    known_[at] = known_[at] || store_->check({beat_key(r)});
    table_.look(r, known_[at] ? Beat::parse(store_->get_to_str(beat_key(r))) : std::nullopt);
  }
  missing_.store(table_.never_seen());
}

void RankWatch::found(Loss loss) {
  const std::scoped_lock lock(mutex_);
  if (lost_ || stop_) return;
  loss.sentence += kHowToContinue;
  lost_ = std::move(loss);
  changed_.notify_all();
}

void RankWatch::run() {
  int failures = 0;
  while (true) {
    try {
      tell(Beat::State::Running, "", 0);
      look();
      failures = 0;
      if (const auto loss = table_.lost()) found(*loss);
    } catch (const std::exception& error) {
      // The holder of the store is gone, or the network to it.
      if (++failures >= 2)
        found({launch_.launcher_holds_store ? -1 : 0,
               launch_.launcher_holds_store
                   ? std::string("The launcher, which holds the store that ranks meet in, is gone.")
                   : std::string("Rank 0, which holds the store that ranks meet in, is gone."),
               false});
    }
    looks_.fetch_add(1);
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, duration(look_seconds_), [this] { return stop_; })) return;
  }
}

void RankWatch::supervise() {
  int64_t looks = -1;
  int still = 0;
  int64_t found_ns = 0;
  while (true) {
    std::optional<Loss> loss;
    bool explaining = false;
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, duration(look_seconds_), [this] { return stop_; })) return;
      loss = lost_;
      explaining = explaining_;
    }
    // Connections to others that wait for this rank may take their time to close.
    if (const int code = ends_with_.load(); code != 0) {
      if (found_ns == 0) found_ns = now_ns();
      if (seconds_between(found_ns, now_ns()) >= kUnwindSeconds) std::_Exit(code);
      continue;
    }
    if (!loss) {
      const int64_t now = looks_.load();
      still = now == looks ? still + 1 : 0;
      looks = now;
      if (still * look_seconds_ >= peer_seconds_ + 2 * look_seconds_)
        found({0,
               fmt::format("The store of the job has not answered for {}: {}, which holds it, is stopped or cut off.",
                           format_seconds(still * look_seconds_),
                           launch_.launcher_holds_store ? "the launcher" : "rank 0"),
               false});
      continue;
    }
    if (found_ns == 0) found_ns = now_ns();
    // One that gave its reason may be followed by this one with the same reason.
    const double patience = explaining || loss->of_its_own ? kUnwindSeconds : kEndSeconds;
    if (seconds_between(found_ns, now_ns()) >= patience) end_process(*loss);
  }
}

void RankWatch::end_process(const Loss& loss) {
  log_error(loss.sentence);
  std::function<void(const Loss&)> told;
  {
    const std::scoped_lock lock(mutex_);
    told = told_;
  }
  if (told) told(loss);
  if (telling_.try_lock()) {  // not when a call is stuck there
    telling_.unlock();
    failed(loss.sentence, static_cast<int>(ExitCode::PeerLost));
  }
  std::_Exit(static_cast<int>(ExitCode::PeerLost));
}

void RankWatch::explain(const std::string& what) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, duration(peer_seconds_ + 3 * look_seconds_ + 1.0), [this] { return lost_.has_value(); });
  explaining_ = true;
  if (lost_) throw PeerLostError(lost_->sentence);
  if (const int missing = missing_.load(); missing >= 0)
    throw PeerLostError(
        fmt::format("Rank {} of {} has not come: it was not started, or does not reach the others ({}).", missing,
                    launch_.ranks.world, what));
  throw PeerLostError(fmt::format("Ranks lost their connection, but all of them live: {}.{}", what, kHowToContinue));
}

void RankWatch::done() {
  {
    const std::scoped_lock lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  failed("", 0);
}

void RankWatch::failed(const std::string& reason, int exit_code) noexcept {
  ends_with_.store(exit_code);
  try {
    tell(exit_code == 0 ? Beat::State::Done : Beat::State::Failed, reason, exit_code);
  } catch (...) {  // the store is gone: nobody is left to tell
  }
}

}  // namespace redline::train
