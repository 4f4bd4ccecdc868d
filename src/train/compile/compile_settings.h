// What a loop needs to know about compiling its step, as plain values.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/machine_facts.h"

namespace redline::train {

enum class CompileMode : uint8_t {
  Off,
  Before,      // `true`: training waits for the package
  Background,  // `auto`: training goes on meanwhile, and the package is kept only when it is faster
};

struct CompileSettings {
  CompileMode mode = CompileMode::Off;
  double limit_seconds = 600;    // of one compilation
  int64_t most_packages = 4;     // shapes beyond that stay eager
  std::filesystem::path folder;  // of the cache; empty: there is no place for one, and nothing is compiled
  std::string machine;           // instruction set and model of the processor: part of a package's name
  int64_t threads = 1;           // that a kernel uses, fixed when it is compiled
};

// What a checkpoint holds of it, so that a resumed run computes each piece the way an undisturbed one would.
struct CompileProgress {
  std::map<std::string, int64_t> since;    // shapes that a package computes, and the step since when
  std::map<std::string, int64_t> shapes;   // how often a shape came, as far as that decides
  std::map<std::string, int64_t> layouts;  // the same of the batches' own layouts, by hash
  bool empty() const { return since.empty() && shapes.empty() && layouts.empty(); }
};

struct TrainerConfig;
// What trainer.compile and its rows mean on this machine; after intra_op_threads is resolved.
CompileSettings compile_settings(const TrainerConfig& trainer, const MachineFacts& machine);

}  // namespace redline::train
