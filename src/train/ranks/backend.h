// c10d's backends behind one function, so that their headers (Gloo's come from Debian) are included in one file.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "train/launch.h"

namespace redline::train {

// `name`: prefix in the store; every group of a job has another.
c10::intrusive_ptr<c10d::ProcessGroup> make_process_group(const c10::intrusive_ptr<c10d::Store>& store,
                                                          const std::string& name, const Launch& launch,
                                                          const std::string& backend, double timeout_seconds,
                                                          int threads);

// The address of this machine's interface towards `peer`.
std::string own_address_towards(const std::string& peer);

}  // namespace redline::train
