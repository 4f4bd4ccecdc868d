// NEST speech pre-training as a task: NeMo's EncDecDenoiseMaskedTokenPredModel on the runtime's contract.
#pragma once

#include "task/registry.h"

namespace redline::models::speech {

task::TaskEntry speech_ssl_entry();

}  // namespace redline::models::speech
