#include "task/context.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace redline::task {
namespace {

std::vector<int64_t> ids(int64_t first, int64_t count) {
  std::vector<int64_t> result;
  for (int64_t i = 0; i < count; ++i) result.push_back(first + i);
  return result;
}

TEST(Context, SplittingABatchDrawsTheSameNumbers) {
  const auto all = ids(40, 8);
  Context whole(1, 9, true, all);
  const torch::Tensor x = torch::ones({8, 6, 33});
  const torch::Tensor dropped = whole.dropout(x, 0.3, "a");
  const torch::Tensor path = whole.drop_path(x, 0.5, "p");
  const torch::Tensor uniform = whole.uniform({8, 50}, "u");
  const torch::Tensor normal = whole.normal({8, 50}, "n");
  for (int64_t split : {2, 4, 8}) {
    const int64_t size = 8 / split;
    for (int64_t part = 0; part < split; ++part) {
      const auto some = ids(40 + part * size, size);
      Context piece(1, 9, true, some);
      const auto rows = [&](const torch::Tensor& t) { return t.narrow(0, part * size, size); };
      EXPECT_TRUE(torch::equal(piece.dropout(rows(x), 0.3, "a"), rows(dropped)));
      EXPECT_TRUE(torch::equal(piece.drop_path(rows(x), 0.5, "p"), rows(path)));
      EXPECT_TRUE(torch::equal(piece.uniform({size, 50}, "u"), rows(uniform)));
      EXPECT_TRUE(torch::equal(piece.normal({size, 50}, "n"), rows(normal)));
    }
  }
}

TEST(Context, PaddingDoesNotMoveTheDraws) {
  const auto samples = ids(3, 2);
  Context ctx(5, 6, true, samples);
  const torch::Tensor wide = ctx.dropout(torch::ones({2, 4, 30, 30}), 0.4, "att", {2, 3});
  const torch::Tensor narrow = ctx.dropout(torch::ones({2, 4, 20, 20}), 0.4, "att", {2, 3});
  EXPECT_TRUE(torch::equal(narrow, wide.narrow(2, 0, 20).narrow(3, 0, 20)));
  // Negative control: without naming them the padded dimensions move the draws.
  const torch::Tensor naive = ctx.dropout(torch::ones({2, 4, 20, 20}), 0.4, "att");
  EXPECT_FALSE(torch::equal(naive, wide.narrow(2, 0, 20).narrow(3, 0, 20)));
  // [B, T, C] needs no mention.
  const torch::Tensor time = ctx.dropout(torch::ones({2, 30, 7}), 0.4, "t");
  EXPECT_TRUE(torch::equal(ctx.dropout(torch::ones({2, 20, 7}), 0.4, "t"), time.narrow(1, 0, 20)));
}

TEST(Context, StepSeedNameAndSampleEachChangeTheDraws) {
  const auto samples = ids(0, 2), others = ids(1, 2);
  const torch::Tensor x = torch::ones({2, 1000});
  const torch::Tensor base = Context(1, 1, true, samples).dropout(x, 0.5, "a");
  EXPECT_TRUE(torch::equal(base, Context(1, 1, true, samples).dropout(x, 0.5, "a")));
  EXPECT_FALSE(torch::equal(base, Context(2, 1, true, samples).dropout(x, 0.5, "a")));
  EXPECT_FALSE(torch::equal(base, Context(1, 2, true, samples).dropout(x, 0.5, "a")));
  EXPECT_FALSE(torch::equal(base, Context(1, 1, true, samples).dropout(x, 0.5, "b")));
  const torch::Tensor shifted = Context(1, 1, true, others).dropout(x, 0.5, "a");
  EXPECT_TRUE(torch::equal(base[1], shifted[0]));
  EXPECT_FALSE(torch::equal(base[0], shifted[1]));
}

TEST(Context, SeveralRowsPerSampleStayWithTheirSample) {
  const auto all = ids(10, 4);
  Context whole(1, 1, true, all);
  const torch::Tensor cameras = whole.dropout(torch::ones({4 * 6, 20}), 0.5, "c");
  const torch::Tensor path = whole.drop_path(torch::ones({4 * 6, 2}), 0.5, "p");
  const auto second_half = ids(12, 2);
  Context half(1, 1, true, second_half);
  EXPECT_TRUE(torch::equal(half.dropout(torch::ones({2 * 6, 20}), 0.5, "c"), cameras.narrow(0, 12, 12)));
  EXPECT_TRUE(torch::equal(half.drop_path(torch::ones({2 * 6, 2}), 0.5, "p"), path.narrow(0, 12, 12)));
  EXPECT_THROW(whole.dropout(torch::ones({7, 3}), 0.5, "c"), InternalError);
}

TEST(Context, DropPathKeepsWholeRowsAndTheMean) {
  const auto samples = ids(0, 4096);
  Context ctx(1, 1, true, samples);
  torch::Tensor x = torch::ones({4096, 3}).requires_grad_(true);
  const torch::Tensor y = ctx.drop_path(x, 0.2, "p");
  EXPECT_TRUE(torch::equal(y.min(), torch::zeros({})));
  EXPECT_NEAR(y.max().item<double>(), 1.25, 1e-6);
  EXPECT_TRUE(torch::equal(y.select(1, 0), y.select(1, 2)));
  EXPECT_NEAR(y.mean().item<double>(), 1.0, 0.04);
  y.sum().backward();
  EXPECT_TRUE(torch::equal(x.grad(), y.detach()));
}

TEST(Context, IdentityOutsideTrainingAndAtTheEnds) {
  const auto samples = ids(0, 2);
  Context evaluation(1, 1, false, samples), training(1, 1, true, samples);
  const torch::Tensor x = torch::ones({2, 5});
  EXPECT_TRUE(evaluation.dropout(x, 0.5, "a").is_same(x));
  EXPECT_TRUE(evaluation.drop_path(x, 0.5, "a").is_same(x));
  EXPECT_TRUE(training.dropout(x, 0.0, "a").is_same(x));
  EXPECT_TRUE(torch::equal(training.dropout(x, 1.0, "a"), torch::zeros({2, 5})));
  EXPECT_THROW(training.dropout(x, 1.5, "a"), InternalError);
  EXPECT_TRUE(torch::equal(evaluation.uniform({2, 8}, "u"), training.uniform({2, 8}, "u")));
}

TEST(Context, HostStreamsFollowTheSameKeys) {
  const auto samples = ids(0, 1);
  const Context ctx(1, 2, true, samples);
  KeyedStream a = ctx.stream(7, "mask"), b = ctx.stream(7, "mask"), c = ctx.stream(8, "mask"),
              whole = ctx.stream(-1, "mask");
  const double first = a.uniform();
  EXPECT_EQ(first, b.uniform());
  EXPECT_NE(first, c.uniform());
  EXPECT_NE(first, whole.uniform());
}

TEST(Context, KeepsOutputsOnlyWhenAsked) {
  const auto samples = ids(0, 1);
  Context ctx(1, 2, true, samples);
  ctx.output("x", torch::ones({1}));
  EXPECT_TRUE(ctx.outputs().empty());
  ctx.want_outputs(true);
  ctx.output("x", torch::ones({1}).requires_grad_(true) * 2);
  EXPECT_FALSE(ctx.outputs().at("x").requires_grad());
}

}  // namespace
}  // namespace redline::task
