// The tuner: observes a job, tries its switches in interleaved trials, proves that the winner trains like the
// reference, confirms the gain with fresh blocks, and writes a card. Decisions are in search, race, candidates and
// certify; this runs them against a clock.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "measure/tune_card.h"
#include "tune/search/candidates.h"
#include "tune/trials/job_source.h"

namespace redline::tune {

struct TuneRequest {
  const task::Registry& registry;
  config::RequestSource source;
  MachineFacts machine;
  double budget_seconds = 180;
  Allow allow;
  int64_t memory_bytes = 0;         // 0: what the machine has
  bool fresh = false;               // do not use a card
  bool full_ledger = false;         // race also what cannot gain
  std::filesystem::path card_file;  // a card to use and write instead of the cache's
  std::string versions;
  double margin = 0.05;           // of the reference's progress that a change may lose (measure/paired_test.h)
  bool accept_not_shown = false;  // keep also what could not be shown to be no worse
  std::optional<double> target;   // the fastest way to this held-out loss
  double cadence_share = 0.01;    // of the time, each of log, monitor, validation, checkpoint
  std::function<void(const std::string&)> say;  // progress, one sentence each
  int same = 0;  // race the job against itself under so many names: every gain would be false
};

struct TuneResult {
  measure::TuneCard card;
  bool from_card = false;  // nothing was run
  bool rechecked = false;  // a card of another machine, confirmed here
  std::filesystem::path card_path;
  Setting best;
};

// Throws ConfigError when the budget or the memory limit is too small, and what the job itself throws at its first
// step, with a word of who says so.
TuneResult tune_job(const TuneRequest& request);

// Settings of a job in turns against the reference: seconds per sample of each block, nullopt where one failed.
struct RaceRow {
  Setting setting;
  std::vector<double> reference, mine;
  std::string failure;
};
std::vector<RaceRow> race_settings(const TuneRequest& request, const std::vector<Setting>& settings, int blocks,
                                   double turn_seconds);

// Does a setting train worse than the job as it is? Judged by pairs of runs, each of so many steps of the reference.
struct CertifyRequest {
  struct Named {
    Setting setting;
    bool alike = false;  // it claims to change numbers or order only: learning more is held against it too
  };
  std::vector<Named> settings;
  int64_t steps = 200;
  int most_pairs = 12;
  bool every_pair = false;  // also of what is clear before
  bool companions = false;  // what counts steps follows the batch, as in tuning
  double longest = 1;       // times the steps that a candidate may run on to reach the reference's loss
  bool speed = false;       // race each setting too, for its time to the loss
};
struct CertifyRow {
  Setting setting;
  measure::Certificate certificate;
  std::optional<measure::RatioEstimate> speed;
  std::string failure;
};
std::vector<CertifyRow> certify_settings(const TuneRequest& request, const CertifyRequest& what);

}  // namespace redline::tune
