// What counts as the same step: equal numbers pass, and each way of being wrong is named.
#include "train/compile/package_proof.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace redline::train {
namespace {

struct Buffers {
  torch::Tensor mean = torch::zeros({3}), variance = torch::ones({3}), count = torch::zeros({}, torch::kInt64);
};

StepNumbers numbers(const Buffers& buffers) {
  StepNumbers all;
  all.value = torch::full({}, 2.0);
  all.weight = torch::full({}, 7.0);
  all.names = {"large.weight", "small.bias", "unused"};
  all.gradients = {torch::full({100}, 1.0), torch::full({4}, 0.1), torch::Tensor()};
  all.norms = {{buffers.mean, buffers.variance, buffers.count, torch::full({3}, 0.5), torch::full({3}, 2.0), 0.1}};
  return all;
}

struct Wrong {
  const char* word;
  std::function<void(StepNumbers&)> change;
};

TEST(PackageProof, NamesWhatIsNotTheSame) {
  const Buffers buffers;
  const StepNumbers wanted = numbers(buffers);
  EXPECT_EQ(compare_steps(numbers(buffers), wanted, Precision::Fp32).problem, "");
  for (const Wrong& wrong : {
           Wrong{"loss off", [](StepNumbers& n) { n.value = n.value * 1.01; }},
           Wrong{"loss off", [](StepNumbers& n) { n.value = n.value * NAN; }},
           Wrong{"gradients by", [](StepNumbers& n) { n.gradients[0] = n.gradients[0] * 1.1; }},
           Wrong{"gradients by", [](StepNumbers& n) { n.gradients[0] = n.gradients[0] * NAN; }},
           // Two hundredths of the whole: within what rounding may do to all, and yet wrong.
           Wrong{"the gradient of small.bias", [](StepNumbers& n) { n.gradients[1] = torch::zeros({4}); }},
           Wrong{"small.bias lacks a gradient", [](StepNumbers& n) { n.gradients[1] = torch::Tensor(); }},
           Wrong{"unused should not have", [](StepNumbers& n) { n.gradients[2] = torch::zeros({2}); }},
           Wrong{"weight", [](StepNumbers& n) { n.weight = n.weight + 1; }},
           Wrong{"statistics", [](StepNumbers& n) { n.norms[0].batch_var_unbiased = torch::full({3}, 2.1); }},
           Wrong{"statistics", [](StepNumbers& n) { n.norms[0].batch_mean = -n.norms[0].batch_mean; }},
           Wrong{"statistics", [](StepNumbers& n) { n.norms[0].momentum = 0.2; }},
           Wrong{"0 BatchNorms instead of 1", [](StepNumbers& n) { n.norms.clear(); }},
           Wrong{"lacks the statistics", [](StepNumbers& n) { n.norms[0].running_mean = torch::zeros({3}); }},
       }) {
    StepNumbers found = numbers(buffers);
    wrong.change(found);
    const Proof proof = compare_steps(found, wanted, Precision::Fp32);
    EXPECT_TRUE(proof.decided);
    EXPECT_NE(proof.problem.find(wrong.word), std::string::npos) << wrong.word << " | " << proof.problem;
  }
}

TEST(PackageProof, RoundingIsNoDifferenceAndLessOfItInFullPrecision) {
  const Buffers buffers;
  StepNumbers found = numbers(buffers);
  found.value = found.value * (1 + 5e-4);
  found.gradients[0] = found.gradients[0] * 1.01;
  EXPECT_EQ(compare_steps(found, numbers(buffers), Precision::Fp32).problem, "");
  found.gradients[0] = found.gradients[0] * 1.1;
  EXPECT_EQ(compare_steps(found, numbers(buffers), Precision::Bf16Mixed).problem, "");
  EXPECT_NE(compare_steps(found, numbers(buffers), Precision::Fp32).problem, "");
}

TEST(PackageProof, APieceThatIsNotFiniteShowsNothing) {
  const Buffers buffers;
  for (const bool gradient : {false, true}) {
    StepNumbers wanted = numbers(buffers);
    (gradient ? wanted.gradients[1] : wanted.value).fill_(INFINITY);
    const Proof proof = compare_steps(numbers(buffers), wanted, Precision::Fp16Mixed);
    EXPECT_FALSE(proof.decided);
    EXPECT_EQ(proof.problem, "");
  }
}

}  // namespace
}  // namespace redline::train
