// The named fault points of saving, in front of another FileOps (measure/faults.h, REDLINE_FAULTS): chaos campaigns
// kill the process at an exact operation of a save, end-to-end tests make the disk fail. Costs one relaxed check per
// operation when nothing is armed.
//   checkpoint.kill       SIGKILL to this process just before the n-th operation
//   checkpoint.kill_soon  the same some hundred microseconds later, from another thread: inside the operation
//   checkpoint.error      the n-th operation fails as a full disk does
#pragma once

#include <memory>

#include "core/file_ops.h"

namespace redline::train {

std::unique_ptr<FileOps> with_fault_points(FileOps& inner);

}  // namespace redline::train
