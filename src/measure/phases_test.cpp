#include "measure/phases.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace redline::measure {
namespace {

TEST(Phases, NamesAreUniqueAndReadBack) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kNumPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    EXPECT_TRUE(names.insert(phase_name(phase)).second);
    EXPECT_EQ(phase_from_name(phase_name(phase)), phase);
  }
  for (size_t i = 0; i < kNumStages; ++i) {
    const auto stage = static_cast<Stage>(i);
    EXPECT_TRUE(names.insert(stage_name(stage)).second) << "a stage may not be named like a phase";
    EXPECT_EQ(stage_from_name(stage_name(stage)), stage);
  }
  EXPECT_EQ(phase_name(Phase::Wait), "wait");
  EXPECT_EQ(phase_name(Phase::Other), "other") << "Other is last: the residual";
  EXPECT_EQ(stage_name(Stage::Collate), "collate");
}

TEST(Phases, UnknownNames) {
  EXPECT_FALSE(phase_from_name("decode").has_value());
  EXPECT_FALSE(stage_from_name("wait").has_value());
  EXPECT_FALSE(phase_from_name("").has_value());
  EXPECT_THROW(phase_name(static_cast<Phase>(kNumPhases)), InternalError);
  EXPECT_THROW(stage_name(static_cast<Stage>(kNumStages)), InternalError);
}

}  // namespace
}  // namespace redline::measure
