// Which precision a job really runs in on this machine.
#pragma once

#include <string>

#include "core/precision.h"

namespace redline::device {

struct PrecisionChoice {
  Precision precision = Precision::Fp32;
  std::string warning;  // one sentence when what runs is not what was asked, or is slower than fp32 here; else empty
};
// 16-mixed on a processor without fp16 units becomes bf16-mixed where it has those and 32-true where not, unless
// strict. On a GPU what was asked.
PrecisionChoice choose_precision(Precision asked, bool strict, const MachineFacts& facts, bool on_cpu);

}  // namespace redline::device
