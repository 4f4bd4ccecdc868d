#include "train/ranks/ranks.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"
#include "measure/faults.h"
#include "train/loop/trainer.h"
#include "train/ranks/equal_state.h"

namespace redline::train {

namespace {

double seconds_of(const std::string& text) { return *parse_seconds(text); }

std::string backend_of(const Job& job) {
  const std::string& asked = job.trainer().strategy.process_group_backend;
  if (asked != "auto") return asked;
  return job.device().is_cuda() ? "nccl" : "gloo";
}

}  // namespace

Ranks::Ranks(const Launch& launch, const Job& job) {
  const StrategyConfig& strategy = job.trainer().strategy;
  const RankGroupSettings settings{seconds_of(strategy.rendezvous_timeout), seconds_of(strategy.timeout),
                                   backend_of(job)};
  store_ = open_store(launch, settings.join_seconds);
  check_token(*store_, launch, job.request_hash());
  watch_ = std::make_unique<RankWatch>(store_->clone(), launch, seconds_of(strategy.peer_timeout));
  group_ =
      std::make_unique<RankGroup>(launch, store_, settings, [this](const std::string& what) { watch_->explain(what); });
  agreement_ = std::make_unique<RankAgreement>(
      *group_, *watch_,
      RankAgreementSettings{strategy, job.trainer().sync_batchnorm,
                            job.precision() == Precision::Fp16Mixed || strategy.compression == "fp16"});
}

void Ranks::announce(const Beginning& begin) { group_->follow(begin.directory + '\n' + begin.checkpoint); }

Ranks::Beginning Ranks::hear() {
  const std::string text = group_->follow("");
  const size_t end = text.find('\n');
  return {text.substr(0, end), text.substr(end + 1)};
}

void Ranks::make_equal(const Trainer& trainer) {
  equal_state(*group_, trainer.state());
  agreement_->begin_at(trainer.position().step);
}

void Ranks::done() {
  watch_->done();
  // For tests: a moment that a signal from outside would have to be lucky to meet.
  if (measure::faults::take(fmt::format("stop.done.{}", group_->rank()).c_str())) ::raise(SIGSTOP);
}

RanksInLoop::RanksInLoop(Ranks* ranks, const Trainer& trainer, measure::RunWriter& writer) : ranks_(ranks) {
  if (ranks_ == nullptr) return;
  ranks_->make_equal(trainer);
  ranks_->watch().on_end([&writer](const Loss& loss) {
    writer.event("rank.lost", {{"rank", int64_t{loss.rank}}, {"why", loss.sentence}});
  });
  if (!ranks_->first()) return;
  ranks_->agreement().on_straggler([&writer](const Straggler& slow, int64_t step) {
    writer.event("rank.straggler", slow.fields(step));
    log_warning(slow.sentence());
  });
}

RanksInLoop::~RanksInLoop() {
  if (ranks_ == nullptr) return;
  ranks_->watch().on_end(nullptr);
  ranks_->agreement().on_straggler(nullptr);
  ranks_->agreement().forget_loop();
}

RunSummary run_with_ranks(Job& job, const Launch& launch, const std::function<RunSummary(Ranks&)>& run) {
  std::optional<Ranks> ranks;
  const auto tell = [&](const char* reason, ExitCode code) {
    if (ranks) ranks->watch().failed(reason, static_cast<int>(code));
  };
  try {
    ranks.emplace(launch, job);
    return run(*ranks);
  } catch (const PeerLostError& error) {
    if (!ranks) throw;
    tell(error.what(), error.code());
    log_error(error.what());
    std::_Exit(static_cast<int>(ExitCode::PeerLost));
  } catch (const Error& error) {
    tell(error.what(), error.code());
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    tell(error.what_without_backtrace(), ExitCode::OutOfMemory);
    throw;
  } catch (const std::exception& error) {
    tell(error.what(), ExitCode::Failure);
    throw;
  }
}

}  // namespace redline::train
