#include "models/sequence_vae/aggressive.h"

#include <gtest/gtest.h>

namespace redline::models::sequence_vae {
namespace {

using Part = AggressiveTraining::Part;

AggressiveOptions small() { return {true, 5, 2}; }

TEST(Aggressive, OffUpdatesBothAlways) {
  AggressiveTraining training({});
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(training.part(), Part::Both);
    training.committed(1.0, 1.0);
  }
}

TEST(Aggressive, DecoderStepsAfterTheMostInnerSteps) {
  AggressiveTraining training(small());
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(training.part(), Part::Encoder) << round << " " << i;
      training.committed(10.0 - i, 1.0);  // falls: no reason to stop early
    }
    EXPECT_EQ(training.part(), Part::Decoder);
    training.committed(1.0, 1.0);
  }
}

// Windows of two: mean 2, then mean 3: it rises, so the decoder is next after four inner steps.
TEST(Aggressive, StopsWhenAWindowsLossPerWordRises) {
  AggressiveTraining training(small());
  for (double loss : {2.0, 2.0, 3.0}) {
    training.committed(loss, 1.0);
    EXPECT_EQ(training.part(), Part::Encoder);
  }
  training.committed(3.0, 1.0);
  EXPECT_EQ(training.part(), Part::Decoder);
}

TEST(Aggressive, ComparesLossPerWordNotLoss) {
  AggressiveTraining training(small());
  training.committed(2.0, 1.0);
  training.committed(2.0, 1.0);
  training.committed(20.0, 20.0);
  training.committed(20.0, 20.0);  // a larger loss, but fewer nats per word
  EXPECT_EQ(training.part(), Part::Encoder);
}

TEST(Aggressive, EndsForGoodWhenMutualInformationFalls) {
  AggressiveTraining training(small());
  training.validated(1.0);
  EXPECT_TRUE(training.active());
  training.validated(2.0);
  EXPECT_TRUE(training.active());
  training.validated(1.9);
  EXPECT_FALSE(training.active());
  EXPECT_EQ(training.part(), Part::Both);
  training.validated(5.0);
  EXPECT_FALSE(training.active());
}

TEST(Aggressive, ContinuesAfterARestart) {
  AggressiveTraining a(small()), b(small());
  const std::vector<double> losses = {2.0, 2.0, 2.5, 3.0, 1.0, 1.0, 4.0};
  for (size_t i = 0; i < losses.size(); ++i) {
    if (i == 3) b.restore(a.state());
    a.committed(losses[i], 1.0);
    if (i >= 3) {
      b.committed(losses[i], 1.0);
      EXPECT_EQ(a.part(), b.part()) << i;
    }
  }
}

}  // namespace
}  // namespace redline::models::sequence_vae
