// What this machine has, for `redline machine`, for resolving `auto`s and for the run record. Takes well under a
// millisecond without a GPU; measured rates (device/rates.h) and disks (device/disk.h) are filled in separately.
#pragma once

#include <string>
#include <vector>

#include "core/machine_facts.h"

namespace redline::device {

MachineFacts read_machine_facts();

// Arithmetic of that width in the processor itself; without it a half is widened, multiplied as fp32 and narrowed
// again.
bool has_bf16_units(const MachineFacts& facts);
bool has_fp16_units(const MachineFacts& facts);

// Cores to plan with: the affinity mask and a quota, rounded down, at least 1. quota 0 = none.
int cores_allowed(int affinity, double quota);

// The facts explained to a person, one sentence each: which precision pays here, what binds, what to leave alone. Pure.
// `problem` is RateReport's: with one, no advice is drawn from the rates.
std::vector<std::string> machine_words(const MachineFacts& facts, const std::string& problem = "");

}  // namespace redline::device
