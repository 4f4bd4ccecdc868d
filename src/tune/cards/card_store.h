// Tune cards on disk: found again by what they were made for, so that a second call costs nothing.
#pragma once

#include <filesystem>
#include <optional>

#include "measure/tune_card.h"
#include "tune/search/candidates.h"
#include "tune/trials/job_source.h"

namespace redline::tune {

// What the user let the tuner do, as part of a card's identity.
// `certificate`: margin, target and the like, where they are not the usual ones.
std::string request_text(const Allow& allow, int64_t memory_bytes, const std::set<std::string>& pinned,
                         const std::string& certificate = {});

// Options that say where a run is written, what it is called and where it starts from: they ask no other question.
bool names_the_run(const std::string& path);

// `versions`: of redline and LibTorch, from app. Opens the data for its statistics; reads no sample.
measure::TuneFingerprint fingerprint(const train::Job& job, const task::Task& task, const std::string& request,
                                     const std::string& versions);

// cache_dir/tune/<hash of model, data and request>.json: the machine and versions are inside, so that a card of another
// machine is found and can be re-checked.
std::filesystem::path card_path(const train::Job& job, const measure::TuneFingerprint& print);

// What a card sets.
Setting card_setting(const measure::TuneCard& card);

// Why the job may not take these values, naming the first that it may not; empty when it may take all. A card is a file
// like any other: it sets what the tuner itself could have set here, with this consent, and nothing else. That are
// tunable options, and what follows from them (companions.h).
std::string setting_refusal(const train::Job& job, const JobView& view, const Allow& allow, const Setting& values);

// nullopt when there is none; a damaged one is said and passed over.
std::optional<measure::TuneCard> load_card(const std::filesystem::path& path);

// Why a card cannot be used as it is, as one sentence; empty when it can.
std::string card_difference(const measure::TuneFingerprint& card, const measure::TuneFingerprint& now);

}  // namespace redline::tune
