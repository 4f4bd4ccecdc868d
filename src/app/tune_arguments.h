// What tune, race and train --tune share: the request to the tuner and the printing of its answer.
#pragma once

#include "app/command.h"
#include "tune/tuner.h"

namespace redline::app {

struct TuneArguments {
  std::string budget = "180s", allow, memory, card;
  bool fresh = false, full = false;
  int same = 0;
};

// Throws ConfigError when a time, a size or a word of --allow cannot be read.
tune::TuneRequest make_tune_request(const task::Registry& registry, const config::RequestSource& source,
                                    const TuneArguments& arguments);

// The user's job with a tuner's values: below what was typed, with the card as their origin.
config::RequestSource tuned_source(config::RequestSource source, const tune::TuneResult& result);

// One sentence: what was found.
std::string tune_summary(const tune::TuneResult& result);

}  // namespace redline::app
