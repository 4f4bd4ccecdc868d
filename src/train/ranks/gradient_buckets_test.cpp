// Sums of gradients over ranks against sums made by hand: buckets, accumulation, parameters that take no part, rounding
// on the wire, and a rank that cannot go on.
#include "train/ranks/gradient_buckets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "train/testing/two_ranks.h"

namespace redline::train {
namespace {

using testing::run_as_ranks;
using testing::ThreadRank;

// Three layers, the last of which may be left out.
struct LayersImpl : torch::nn::Module {
  LayersImpl() {
    for (int i = 0; i < 3; ++i)
      weights.push_back(register_parameter(fmt::format("w{}", i), torch::full({8, 8}, 0.1 * (i + 1))));
  }
  torch::Tensor loss(const torch::Tensor& x, bool all) {
    torch::Tensor y = torch::tanh(x.matmul(weights[0])).matmul(weights[1]);
    if (all) y = y.matmul(weights[2]);
    return y.pow(2).sum();
  }
  std::vector<torch::Tensor> weights;
};

torch::Tensor input_of(int rank, int piece) {
  return torch::arange(24, torch::kFloat32).view({3, 8}) * 0.01 + 0.3 * rank - 0.2 * piece;
}

struct Pass {
  int pieces = 1;
  bool all_layers = true;  // on rank 1; rank 0 always uses all
};

// By hand: all pieces of all ranks through one model.
std::vector<torch::Tensor> expected_gradients(int world, const Pass& pass) {
  LayersImpl model;
  for (int r = 0; r < world; ++r)
    for (int p = 0; p < pass.pieces; ++p) model.loss(input_of(r, p), r == 0 || pass.all_layers).backward();
  std::vector<torch::Tensor> result;
  for (const torch::Tensor& w : model.weights) result.push_back(w.grad());
  return result;
}

void run_pass(GradientBuckets& buckets, LayersImpl& model, int rank, const Pass& pass) {
  for (torch::Tensor& w : model.weights) w.mutable_grad().reset();
  buckets.begin();
  for (int p = 0; p < pass.pieces; ++p) {
    const torch::Tensor loss = model.loss(input_of(rank, p), rank == 0 || pass.all_layers);
    if (p + 1 == pass.pieces)
      buckets.last_backward(loss, [&] { loss.backward(); });
    else
      loss.backward();
  }
}

void expect_sums(const BucketSettings& settings, const std::vector<Pass>& passes, double tolerance) {
  run_as_ranks(2, [&](ThreadRank& self) {
    LayersImpl model;
    measure::StepClock clock;
    GradientBuckets buckets(self.group, model, settings, clock);
    for (const Pass& pass : passes) {
      run_pass(buckets, model, self.rank(), pass);
      const std::vector<torch::Tensor> expected = expected_gradients(2, pass);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_TRUE(model.weights[i].grad().defined()) << i;
        EXPECT_TRUE(torch::allclose(model.weights[i].grad(), expected[i], tolerance, tolerance * 1e-2))
            << "rank " << self.rank() << ", weight " << i;
      }
    }
  });
}

BucketSettings small_buckets() {
  BucketSettings settings;
  settings.bucket_bytes = 300;  // a layer each
  return settings;
}

const std::vector<Pass> kPasses{{1, true}, {1, true}, {3, true}, {1, true}, {2, true}, {1, true}};

TEST(GradientBuckets, SumsOverRanksWithAndWithoutAccumulation) {
  expect_sums(small_buckets(), kPasses, 1e-5);
  expect_sums(BucketSettings(), kPasses, 1e-5);
}

TEST(GradientBuckets, SaysHowTheExchangeWent) {
  run_as_ranks(2, [](ThreadRank& self) {
    LayersImpl model;
    measure::StepClock clock;
    GradientBuckets buckets(self.group, model, small_buckets(), clock);
    EXPECT_FALSE(buckets.take_timeline()) << "nothing yet";
    int measured = 0;
    for (int pass = 0; pass < 6; ++pass) {
      run_pass(buckets, model, self.rank(), {2, true});
      if (const auto squared = buckets.own_squared()) {
        ++measured;
        LayersImpl own;
        for (int piece = 0; piece < 2; ++piece) own.loss(input_of(self.rank(), piece), true).backward();
        double expected = 0;
        for (const torch::Tensor& w : own.weights) expected += w.grad().pow(2).sum().item<double>();
        EXPECT_NEAR(*squared, expected, 1e-5 * expected) << "before the others' were added";
      }
      buckets.note_exchange(5);
      const auto timeline = buckets.take_timeline();
      ASSERT_TRUE(timeline);
      EXPECT_FALSE(buckets.take_timeline()) << "once";
      EXPECT_EQ(timeline->exchanges, 1);
      EXPECT_EQ(timeline->exchange_ns, 5);
      EXPECT_EQ(timeline->bytes(), 3 * 256);
      ASSERT_EQ(timeline->buckets.size(), pass == 0 ? 1u : 2u) << "made anew after the first pass";
      for (const measure::BucketTimes& one : timeline->buckets) {
        EXPECT_GT(one.ready_ns, 0);
        EXPECT_GE(one.done_ns, one.ready_ns);
      }
      EXPECT_EQ(timeline->backward_ns, timeline->buckets.back().ready_ns);
      EXPECT_GE(timeline->end_ns, timeline->backward_ns);
    }
    EXPECT_EQ(measured, 1);
  });
}

TEST(GradientBuckets, WithoutViewsTheSameSums) {
  BucketSettings settings = small_buckets();
  settings.gradient_as_bucket_view = false;
  expect_sums(settings, kPasses, 1e-5);
}

TEST(GradientBuckets, AParameterThatOneRankDoesNotUseCountsAsZeroThere) {
  const std::vector<Pass> passes{{1, true}, {1, false}, {2, false}, {1, true}, {1, false}};
  expect_sums(small_buckets(), passes, 1e-5);
  expect_sums(small_buckets(), {{1, false}, {1, false}, {1, true}}, 1e-5);
  BucketSettings searching = small_buckets();
  searching.find_unused = true;
  expect_sums(searching, passes, 1e-5);
}

TEST(GradientBuckets, OneThatNobodyUsesIsZeroOrNone) {
  for (const bool searching : {false, true}) {
    run_as_ranks(2, [&](ThreadRank& self) {
      LayersImpl model;
      measure::StepClock clock;
      BucketSettings settings = small_buckets();
      settings.find_unused = searching;
      GradientBuckets buckets(self.group, model, settings, clock);
      for (int pass = 0; pass < 3; ++pass) {
        for (torch::Tensor& w : model.weights) w.mutable_grad().reset();
        buckets.begin();
        const torch::Tensor loss = model.loss(input_of(self.rank(), 0), /*all=*/false);
        buckets.last_backward(loss, [&] { loss.backward(); });
        EXPECT_EQ(model.weights[2].grad().defined(), !searching);
        EXPECT_TRUE(model.weights[1].grad().defined());
      }
    });
  }
}

TEST(GradientBuckets, RoundedOnTheWire) {
  for (const char* type : {"bf16", "fp16"}) {
    BucketSettings settings = small_buckets();
    settings.compression = type;
    expect_sums(settings, kPasses, 2e-2);
  }
}

TEST(GradientBuckets, ARankThatCannotGoOnKeepsTheOthersCompany) {
  for (const bool searching : {false, true}) {
    run_as_ranks(2, [&](ThreadRank& self) {
      LayersImpl model;
      measure::StepClock clock;
      BucketSettings settings = small_buckets();
      settings.find_unused = searching;
      GradientBuckets buckets(self.group, model, settings, clock);
      for (int round = 0; round < 3; ++round) {
        run_pass(buckets, model, self.rank(), {1, true});
        // Rank 1 gives up: before its backward, then in the middle of it.
        if (self.rank() == 0) {
          run_pass(buckets, model, 0, {1, true});
        } else {
          buckets.begin();
          if (round > 0) {
            const torch::Tensor loss = model.loss(input_of(1, 0), true);
            const unsigned id = model.weights[1].register_hook([](const torch::Tensor& gradient) -> torch::Tensor {
              static_cast<void>(gradient);
              throw OutOfMemoryError("a test's");
            });
            EXPECT_THROW(buckets.last_backward(loss, [&] { loss.backward(); }), OutOfMemoryError);
            model.weights[1].remove_hook(id);
          }
          buckets.keep_company(/*last=*/true, [] {});
        }
        buckets.abandon();
      }
      run_pass(buckets, model, self.rank(), {1, true});
      const std::vector<torch::Tensor> expected = expected_gradients(2, {1, true});
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::allclose(model.weights[i].grad(), expected[i], 1e-5, 1e-7)) << self.rank() << " " << i;
    });
  }
}

}  // namespace
}  // namespace redline::train
