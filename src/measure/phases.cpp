// Names as they appear in records, tables and reports; changing one changes the record's format.
#include "measure/phases.h"

#include "core/check.h"

namespace redline::measure {
namespace {

constexpr std::array<std::string_view, kNumPhases> kPhaseNames = {
    "wait", "copy", "forward", "backward", "reduce", "optimiser", "log", "monitor", "validate", "checkpoint", "other"};
constexpr std::array<std::string_view, kNumStages> kStageNames = {"read", "decode", "transform", "collate"};

}  // namespace

std::string_view phase_name(Phase phase) {
  REDLINE_CHECK(static_cast<size_t>(phase) < kNumPhases, "a Phase is one of the listed ones");
  return kPhaseNames[static_cast<size_t>(phase)];
}

std::string_view stage_name(Stage stage) {
  REDLINE_CHECK(static_cast<size_t>(stage) < kNumStages, "a Stage is one of the listed ones");
  return kStageNames[static_cast<size_t>(stage)];
}

std::optional<Phase> phase_from_name(std::string_view name) {
  for (size_t i = 0; i < kNumPhases; ++i) {
    if (kPhaseNames[i] == name) return static_cast<Phase>(i);
  }
  return std::nullopt;
}

std::optional<Stage> stage_from_name(std::string_view name) {
  for (size_t i = 0; i < kNumStages; ++i) {
    if (kStageNames[i] == name) return static_cast<Stage>(i);
  }
  return std::nullopt;
}

}  // namespace redline::measure
