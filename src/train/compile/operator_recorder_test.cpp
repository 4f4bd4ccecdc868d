#include "train/compile/operator_recorder.h"

#include <gtest/gtest.h>

namespace redline::train {
namespace {

using nlohmann::json;

const json& call_of(const RecordedProgram& program, const std::string& name) {
  for (const json& call : program.calls)
    if (call.at("op") == name) return call;
  throw std::runtime_error("no call of " + name);
}

// Why the code cannot be compiled.
std::string refusal(const std::function<void()>& code) {
  OperatorRecorder recorder;
  try {
    recorder.run(code);
  } catch (const CannotCompile& error) {
    return error.what();
  }
  return "";
}

TEST(OperatorRecorder, SeesForwardAndBackwardBelowAutograd) {
  const torch::Tensor x = torch::randn({4, 3}), w = torch::randn({3, 3}).requires_grad_(true);
  OperatorRecorder recorder;
  const int64_t x_number = recorder.input(x), w_number = recorder.input(w);
  torch::Tensor gradient;
  recorder.run([&] {
    const torch::Tensor y = torch::relu(torch::mm(x, w));
    gradient = torch::autograd::grad({y.sum()}, {w})[0];
  });
  EXPECT_TRUE(recorder.was_read(x_number));
  EXPECT_TRUE(recorder.was_read(w_number));
  const int64_t result = recorder.number_of(gradient);
  const RecordedProgram program = recorder.take();
  EXPECT_TRUE(program.constants.empty());
  const json &product = call_of(program, "aten::mm"), &relu = call_of(program, "aten::relu");
  EXPECT_EQ(product.at("args")[0].at("t"), x_number);
  EXPECT_EQ(product.at("args")[1].at("t"), w_number);
  // relu keeps its result for backward, which comes back as another tensor over the same memory.
  const json& backward = call_of(program, "aten::threshold_backward");
  EXPECT_EQ(backward.at("args")[1].at("t"), relu.at("out")[0]);
  EXPECT_EQ(program.calls.back().at("out")[0], result);
}

TEST(OperatorRecorder, NumbersAreNumbersAndOtherTensorsConstants) {
  const torch::Tensor x = torch::ones({2}), table = torch::full({2}, 5.0);
  OperatorRecorder recorder;
  recorder.input(x);
  recorder.run([&] { (x * 2.5 + table).mean(); });
  const RecordedProgram program = recorder.take();
  EXPECT_EQ(call_of(program, "aten::mul").at("args")[1], 2.5);
  ASSERT_EQ(program.constants.size(), 1u);
  EXPECT_EQ(call_of(program, "aten::add").at("args")[1].at("t"), program.constants.begin()->first);
  EXPECT_TRUE(torch::equal(program.constants.begin()->second, table));
}

TEST(OperatorRecorder, InPlaceKeepsTheNumberAndViewsAreCalls) {
  OperatorRecorder recorder;
  torch::Tensor out;
  recorder.run([&] {
    out = torch::zeros({2, 4});
    out.narrow(1, 0, 2).add_(1.0);
  });
  const int64_t number = recorder.number_of(out);
  const RecordedProgram program = recorder.take();
  EXPECT_EQ(call_of(program, "aten::zeros").at("out")[0], number);
  const json& added = call_of(program, "aten::add_");
  EXPECT_EQ(added.at("out")[0], added.at("args")[0].at("t"));
  EXPECT_NE(added.at("out")[0], number);
}

TEST(OperatorRecorder, NothingIsRecordedOutsideOrInAPause) {
  OperatorRecorder recorder;
  torch::ones({1});
  recorder.run([&] {
    const OperatorRecorder::Pause quiet;
    torch::ones({1});
  });
  EXPECT_TRUE(recorder.take().calls.empty());
}

// A piece may be computed twice, and weights change at commit alone.
TEST(OperatorRecorder, RefusesToWriteIntoWhatItIsGiven) {
  const torch::Tensor given = torch::ones({3});
  const auto refusal_of = [&](const std::function<void()>& code) -> std::string {
    OperatorRecorder recorder;
    recorder.input(given);
    try {
      recorder.run(code);
    } catch (const CannotCompile& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal_of([&] { given.add_(1.0); }).find("writes into a tensor"), std::string::npos);
  EXPECT_NE(refusal_of([&] { given.narrow(0, 0, 1).zero_(); }).find("writes into a tensor"), std::string::npos);
  EXPECT_EQ(refusal_of([&] { given.clone().add_(1.0); }), "");
  EXPECT_TRUE(torch::equal(given, torch::ones({3})));
}

TEST(OperatorRecorder, RefusesWhatACompilerCannotSee) {
  const torch::Tensor x = torch::ones({3});
  EXPECT_NE(refusal([&] { x.sum().item<double>(); }).find("reads a value on the host"), std::string::npos);
  EXPECT_NE(refusal([&] { x.nonzero(); }).find("depends on values"), std::string::npos);
  EXPECT_NE(refusal([&] { torch::randn({2}); }).find("global generator"), std::string::npos);
  EXPECT_NE(refusal([&] {
              torch::Tensor made = torch::empty({3});
              made.mutable_data_ptr<float>()[0] = 1.0f;  // a kernel of one's own
              (made + 1.0).sum();
            }).find("aten::add"),
            std::string::npos);
  // The control: memory that an operator fills is fine.
  EXPECT_EQ(refusal([&] {
              torch::Tensor made = torch::empty({3});
              made.narrow(0, 0, 3).copy_(x);
              (made + 1.0).sum();
            }),
            "");
}

}  // namespace
}  // namespace redline::train
