#include "train/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace redline::train {
namespace {

std::vector<measure::StepRow> losses(const std::vector<double>& values) {
  std::vector<measure::StepRow> rows;
  for (double value : values) {
    measure::StepRow row;
    row.step = static_cast<int64_t>(rows.size()) + 1;
    row.loss = value;
    rows.push_back(row);
  }
  return rows;
}

TEST(Diff, FirstStepTable) {
  struct Row {
    const char* why;
    std::vector<double> a, b;
    int64_t step;  // 0: equal
    const char* what;
  };
  const Row rows[] = {
      {"equal", {1, 2, 3}, {1, 2, 3}, 0, ""},
      {"one bit", {1, 2, 3}, {1, std::nextafter(2.0, 3.0), 3}, 2, "loss"},
      {"zero has two signs", {0.0}, {-0.0}, 1, "loss"},
      {"a NaN equals itself", {NAN}, {NAN}, 0, ""},
      {"one is longer", {1, 2}, {1, 2, 3}, 3, "only in B"},
      {"the other is longer", {1, 2, 3}, {1}, 2, "only in A"},
      {"both empty", {}, {}, 0, ""},
  };
  for (const Row& row : rows) {
    const auto found = first_step_difference(losses(row.a), losses(row.b));
    EXPECT_EQ(found ? found->step : 0, row.step) << row.why;
    if (found) {
      EXPECT_EQ(found->what, row.what) << row.why;
    }
  }
}

TEST(Diff, LaterRowsOfAStepWinAndOtherColumnsCount) {
  auto a = losses({1, 2, 3}), b = losses({1, 9, 3});
  b.push_back(a[1]);  // repeated after a resume
  int64_t compared = 0, different = 0;
  EXPECT_FALSE(first_step_difference(a, b, &compared, &different).has_value());
  EXPECT_EQ(compared, 3);
  EXPECT_EQ(different, 0);
  auto longer = a;
  longer.push_back(losses({0, 0, 0, 4})[3]);
  EXPECT_EQ(first_step_difference(longer, a, &(compared = 0), &different)->what, "only in A");
  EXPECT_EQ(compared, 3);
  EXPECT_EQ(different, 0);  // of the steps in both
  b[2].grad_norm = 0.5;
  EXPECT_EQ(first_step_difference(a, b)->what, "grad_norm");
  b[2].learning_rate = 0.5;
  EXPECT_EQ(first_step_difference(a, b)->what, "learning_rate");
}

TEST(Diff, Tensors) {
  const torch::Tensor base = torch::arange(6, torch::kFloat32);
  torch::Tensor changed = base.clone(), nan = base.clone();
  changed[4] += 0.25;
  changed[5] += 0.5;
  nan[0] = NAN;
  DiffResult result;
  diff_tensors("model",
               {{"same", base},
                {"values", base},
                {"shape", base},
                {"type", base},
                {"gone", base},
                {"nan", base},
                {"both_nan", nan},
                {"empty", torch::empty({0})}},
               {{"same", base.clone()},
                {"values", changed},
                {"shape", base.reshape({2, 3})},
                {"type", base.to(torch::kFloat16)},
                {"nan", nan},
                {"both_nan", nan.clone()},
                {"empty", torch::empty({0})},
                {"new", base}},
               result);
  EXPECT_FALSE(result.equal());
  EXPECT_EQ(result.tensors_compared, 7);
  ASSERT_EQ(result.tensors.size(), 6u);
  EXPECT_EQ(result.tensors[0].name, "values");
  EXPECT_EQ(result.tensors[0].elements, 2);
  EXPECT_EQ(result.tensors[0].largest, 0.5);
  EXPECT_EQ(result.tensors[1].what, "shape [6] and [2, 3]");
  EXPECT_EQ(result.tensors[2].what, "type F32 and F16");
  EXPECT_EQ(result.tensors[3].what, "only in A");
  EXPECT_EQ(result.tensors[4].name, "nan");
  EXPECT_TRUE(std::isinf(result.tensors[4].largest));
  EXPECT_EQ(result.tensors[5].what, "only in B");
}

// Each type that safetensors stores, in each kind of shape: the last element's highest bit differs.
TEST(Diff, EveryTypeAndShape) {
  using torch::ScalarType;
  for (const ScalarType type :
       {torch::kBool, torch::kUInt8, torch::kInt8, torch::kInt16, torch::kUInt16, torch::kInt32, torch::kUInt32,
        torch::kInt64, torch::kUInt64, torch::kFloat16, torch::kBFloat16, torch::kFloat32, torch::kFloat64,
        torch::kFloat8_e4m3fn, torch::kFloat8_e5m2, torch::kComplexFloat}) {
    for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{{}, {1}, {3}, {2, 0}, {2, 3, 2}}) {
      const torch::Tensor a = torch::zeros(shape, torch::TensorOptions(type));
      const torch::Tensor b = torch::zeros(shape, torch::TensorOptions(type));
      auto* bytes = static_cast<unsigned char*>(b.data_ptr());
      if (b.numel() > 0) bytes[b.nbytes() - 1] = type == torch::kBool ? 1 : 0x40;
      DiffResult result;
      diff_tensors("model", {{"x", a}, {"y", a}}, {{"x", b}, {"y", a.clone()}}, result);
      ASSERT_EQ(result.tensors.size(), b.numel() > 0 ? 1u : 0u) << toString(type) << shape.size();
      if (b.numel() == 0) continue;
      EXPECT_EQ(result.tensors[0].elements, 1) << toString(type);
      EXPECT_GT(result.tensors[0].largest, 0.0) << toString(type);
      diff_tensors("model", {{"z", a}}, {{"z", torch::zeros({7}, torch::TensorOptions(type))}}, result);
      EXPECT_THAT(result.tensors.back().what, ::testing::HasSubstr("shape ["));
    }
  }
}

TEST(Diff, GapsAreOfTheElementsThatDiffer) {
  const torch::Tensor counter = torch::tensor(int64_t{1} << 60);
  torch::Tensor half = torch::tensor({NAN, INFINITY, 1.0f}), other = half.clone();
  other[2] = 1.25f;
  DiffResult result;
  diff_tensors("model", {{"counter", counter}, {"half", half}}, {{"counter", counter + 1}, {"half", other}}, result);
  ASSERT_EQ(result.tensors.size(), 2u);
  EXPECT_EQ(result.tensors[0].largest, 1.0);   // as doubles the two are equal
  EXPECT_EQ(result.tensors[1].largest, 0.25);  // equal bits that are not finite do not count
}

}  // namespace
}  // namespace redline::train
