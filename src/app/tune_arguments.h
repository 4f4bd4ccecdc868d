// What tune, race and train --tune share: the request to the tuner and the printing of its answer.
#pragma once

#include "app/command.h"
#include "tune/tuner.h"

namespace redline::app {

struct TuneArguments {
  std::string budget = "180s", allow, memory, card;
  bool fresh = false, full = false;
  double margin_percent = 5;
  std::string accept, target;
  int same = 0;
};
// "key=value key=value"; throws ConfigError.
tune::Setting parse_setting(const std::string& text);
// The options of the certificate: --margin and --target.
void add_certificate_arguments(CLI::App& command, TuneArguments& arguments);

// Throws ConfigError when a time, a size or a word of --allow cannot be read.
tune::TuneRequest make_tune_request(const task::Registry& registry, const config::RequestSource& source,
                                    const TuneArguments& arguments);

// The user's job with a tuner's values: below what was typed, with the card as their origin.
config::RequestSource tuned_source(config::RequestSource source, const tune::TuneResult& result);

// One or two sentences: the gain, how many settings changed, and what a larger gain would need.
std::string tune_summary(const tune::TuneResult& result);

}  // namespace redline::app
