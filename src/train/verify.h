// The audit behind `redline verify`: checksums, SHA-256, structure and values of checkpoints, and the run record around
// them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/generation.h"

namespace redline::train {

struct VerifiedItem {
  std::filesystem::path path;  // a generation, or a single .safetensors file
  std::optional<int64_t> step;
  std::vector<Damage> damage;
  std::vector<std::string> extra;       // files that the manifest does not know
  std::vector<std::string> not_finite;  // tensors that hold NaN or infinity: whole, but useless
  int64_t tensors = 0;
  uint64_t bytes = 0;

  bool whole() const { return damage.empty(); }
};

struct VerifyResult {
  std::vector<VerifiedItem> items;           // oldest first
  std::vector<std::string> leftovers;        // quarantined, superseded and temporary directories
  std::vector<std::string> record_warnings;  // of the run record, when there is one
  int64_t recorded_steps = -1;               // -1: not a run directory

  size_t damaged() const;
};

// A generation, a checkpoints or run directory, or a .safetensors file. Changes nothing. Throws CheckpointError when
// there is nothing to verify; damage is a result, not an error.
VerifyResult verify_path(const std::filesystem::path& path);

}  // namespace redline::train
