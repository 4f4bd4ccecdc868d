// Which of the doctor's candidates the tuner may race: what the user allowed and what was typed. And the settings that
// are raced first, so that the candidates' predictions rest on more than one size. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "doctor/candidates.h"
#include "tune/setting.h"

namespace redline::tune {

// What the user lets the tuner change besides speed. Rounding (threads, micro-batches) needs no word: it is proved.
struct Allow {
  bool numerics = false, order = false, optimisation = false;
  // The word that is missing for a switch with that effect; empty when it may be tried.
  std::string missing(config::Effect consent) const;
};
// "numerics,order"; throws ConfigError on another word.
Allow parse_allow(const std::string& text);

// The doctor's candidates without those that would move what was typed; what nobody allowed is not tried, and says so.
std::vector<Candidate> make_candidates(const JobView& job, const doctor::Observation& seen, const MachineFacts& machine,
                                       const Allow& allow, const doctor::PlanModel& plans,
                                       double cadence_share = doctor::kCadenceShare);

// The job's step in pieces of four times the rows; nullopt for one whose batches are bounded by length.
std::optional<Setting> larger_pieces(const JobView& job);
// A setting in length buckets; nullopt for a job that has nothing to gain from them or may not use them.
std::optional<Setting> in_buckets(const JobView& job, const Allow& allow, const Setting& setting);
// The most promising other precision for this machine's rates, with its switch; nullopt where none may gain or be used.
std::optional<Setting> other_precision(const JobView& job, const MachineFacts& machine, const Allow& allow);
// The other end of the threads: one, or all cores for a job that has one; nullopt where there is only one core.
std::optional<int> other_threads(const JobView& job, const MachineFacts& machine);

}  // namespace redline::tune
