// The machine's rates, measured once and kept: a profile in the user's cache with its date. Only rates that can be this
// machine's are kept or used; a measurement beside a busy neighbour is an accident, and advice drawn from it is wrong.
// Nothing here decides what a job computes: precision follows the processor's units alone (train/options), so that the
// same job is the same job however busy the machine is.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/machine_facts.h"
#include "device/rates.h"

namespace redline::device {

// Why these rates cannot be those of a machine with these units, as part of a sentence; empty = plausible. Pure.
std::string rates_problem(const MachineFacts& facts);
void clear_rates(MachineFacts& facts);

// What the rates depend on: processor, units, cores, LibTorch.
std::string profile_key(const MachineFacts& facts);
// $XDG_CACHE_HOME/redline or ~/.cache/redline, one file for each key; empty when there is no home.
std::filesystem::path profile_path(const MachineFacts& facts);

// Fills the rates from the profile. Empty when there is none; one that is damaged or implausible is ignored, and said.
std::optional<RateReport> load_profile(MachineFacts& facts);

// Measures anew, twice when the first time was disturbed, and keeps what is plausible; a cache that cannot be written
// is no error. With `problem` set the rates are lower limits, and a profile that was there is still there.
RateReport measure_profile(MachineFacts& facts, const RateOptions& options = {});

// For advice: the profile's rates, or new ones; none at all (and a warning that says why) when they could not be
// measured. Returns whether there are any.
bool read_or_measure_rates(MachineFacts& facts);

}  // namespace redline::device
