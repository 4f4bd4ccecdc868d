// The named parts of a step (main thread) and of a sample's way through a worker. The phases of a step add up to its
// wall time; what no scope claims is Other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace redline::measure {

enum class Phase : uint8_t {
  Wait,
  Copy,
  Forward,
  Backward,
  Reduce,
  Optimiser,
  Log,
  Monitor,
  Validate,
  Checkpoint,
  Other
};
inline constexpr size_t kNumPhases = 11;
enum class Stage : uint8_t { Read, Decode, Transform, Collate };
inline constexpr size_t kNumStages = 4;

std::string_view phase_name(Phase phase);  // "wait", "copy", ...
std::string_view stage_name(Stage stage);
std::optional<Phase> phase_from_name(std::string_view name);
std::optional<Stage> stage_from_name(std::string_view name);

using PhaseTimes = std::array<int64_t, kNumPhases>;  // nanoseconds
using StageTimes = std::array<int64_t, kNumStages>;

}  // namespace redline::measure
