#include "train/ranks/peer_table.h"

#include <gtest/gtest.h>

namespace redline::train {
namespace {

Beat beat_of(int64_t count, Beat::State state = Beat::State::Running, const std::string& reason = "", int code = 0) {
  return {count, state, 16, "backward", reason, code};
}

TEST(PeerTable, ABeatSurvivesItsText) {
  const Beat beat{7, Beat::State::Failed, 16, "forward", "a\tb\nc", 3};
  const auto read = Beat::parse(beat.text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->count, 7);
  EXPECT_EQ(read->state, Beat::State::Failed);
  EXPECT_EQ(read->step, 16);
  EXPECT_EQ(read->phase, "forward");
  EXPECT_EQ(read->exit_code, 3);
  EXPECT_FALSE(Beat::parse("").has_value());
  EXPECT_FALSE(Beat::parse("1\t9\t1\t0\tx\ty").has_value());
}

TEST(PeerTable, SilenceIsCountedInLooks) {
  PeerTable table(0, 3, 4, 2.5);
  for (int look = 0; look < 20; ++look) {
    table.look(1, beat_of(look));
    table.look(2, beat_of(look));
    EXPECT_FALSE(table.lost()) << "all of them live";
  }
  for (int look = 0; look < 4; ++look) {
    EXPECT_FALSE(table.lost()) << look;
    table.look(1, beat_of(100 + look));
    table.look(2, beat_of(19));
  }
  const auto loss = table.lost();
  ASSERT_TRUE(loss);
  EXPECT_EQ(loss->rank, 2);
  EXPECT_EQ(loss->sentence,
            "Rank 2 has given no sign of life for 10 s (last seen in backward of step 17): it is stopped, hung or cut "
            "off.");
  table.look(2, beat_of(20));
  EXPECT_FALSE(table.lost()) << "it was only slow";
}

TEST(PeerTable, TheFirstCauseIsNamed) {
  PeerTable table(0, 4, 2, 1.0);
  for (int look = 0; look < 5; ++look) {
    table.look(1, beat_of(1, Beat::State::Failed, "Rank 3 was killed.", 8));
    table.look(2, beat_of(look));
    table.look(3, beat_of(1));
  }
  EXPECT_EQ(table.lost()->rank, 3) << "rank 1 ended because of it";
  table.look(2, beat_of(9, Beat::State::Failed, "no data", 3));
  EXPECT_EQ(table.lost()->sentence, "Rank 2 ended: no data");
  table.gone(3, "was killed by Killed");
  EXPECT_EQ(table.lost()->sentence, "Rank 3 was killed by Killed (last seen in backward of step 17).");
}

TEST(PeerTable, WhoHasNotComeIsKnown) {
  PeerTable table(1, 3, 4, 2.5);
  EXPECT_EQ(table.never_seen(), 0);
  table.look(0, beat_of(1));
  EXPECT_EQ(table.never_seen(), 2);
  for (int look = 0; look < 9; ++look) {
    table.look(0, beat_of(2 + look));
    table.look(2, std::nullopt);
  }
  EXPECT_FALSE(table.lost()) << "the rendezvous has a limit of its own";
  table.look(2, beat_of(1));
  EXPECT_EQ(table.never_seen(), -1);
}

TEST(PeerTable, OneThatIsDoneIsNotLost) {
  PeerTable table(1, 2, 2, 1.0);
  for (int look = 0; look < 9; ++look) table.look(0, beat_of(5, Beat::State::Done));
  table.gone(0, "ended with code 0");
  EXPECT_FALSE(table.lost());
  EXPECT_EQ(beat_of(5, Beat::State::Done).last_seen(), "last seen after its last step, 16");
}

}  // namespace
}  // namespace redline::train
