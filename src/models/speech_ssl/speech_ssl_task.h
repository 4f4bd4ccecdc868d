// NEST speech pre-training as a task: NeMo's EncDecDenoiseMaskedTokenPredModel on the runtime's contract.
#pragma once

#include "models/speech_ssl/options.h"
#include "task/registry.h"

namespace redline::models::speech {

task::TaskEntry speech_ssl_entry();

// The task itself, for callers that hold options instead of a request.
std::unique_ptr<task::Task> make_speech_ssl_task(ModelOptions options, uint64_t seed);

}  // namespace redline::models::speech
