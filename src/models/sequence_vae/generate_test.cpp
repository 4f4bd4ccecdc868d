// Generation step by step (cached keys, LSTM state) must agree with the whole-sequence decoder that was trained.
#include "models/generate.h"

#include <gtest/gtest.h>

namespace redline::models::sequence_vae {
namespace {

Options step_options(const std::string& architecture) {
  Options o;
  o.architecture = architecture;
  o.vocab_size = 13;
  o.latent_dim = 3;
  o.d_model = 16;
  o.n_heads = 2;
  o.d_ff = 24;
  o.n_encoder_layers = o.n_decoder_layers = 2;
  o.max_sequence_length = 12;
  o.lstm = {8, 10, 12, 0.5, 0.5};
  return o;
}

// -sum log p(token_t | before) from the step decoder's logits.
double nll_by_steps(SequenceVaeTask& task, const std::vector<int64_t>& tokens, const torch::Tensor& z) {
  const auto steps = task.model().decoder_for(z);
  double nll = 0.0;
  for (size_t t = 0; t + 1 < tokens.size(); ++t) {
    const torch::Tensor logits = steps->step(torch::tensor({tokens[t]}, torch::kInt64));
    nll -= logits[0].log_softmax(0)[tokens[t + 1]].item<double>();
  }
  return nll;
}

TEST(Generate, StepByStepEqualsTheWholeSequence) {
  for (const char* architecture : {"transformer", "lstm"})
    for (bool norm_first : {true, false}) {
      Options o = step_options(architecture);
      o.norm_first = norm_first;
      SequenceVaeTask task(o, 5);
      const torch::NoGradGuard no_grad;
      const std::vector<int64_t> tokens = {1, 5, 9, 4, 4, 11, 2};
      Sequences in;
      in.rows = pack_rows({7}, {0});
      in.tokens = torch::tensor(tokens, torch::kInt64);
      const torch::Tensor z = prior_codes(1, 3, 77) * 3.0;
      const std::vector<int64_t> ids = {0};
      task::Context ctx(0, 0, false, ids);
      EXPECT_NEAR(nll_by_steps(task, tokens, z), task.model().reconstruct(in, z, ctx)[0].item<double>(), 1e-4)
          << architecture;
    }
}

TEST(Generate, ValuesStepByStepEqualTheWholeSequence) {
  Options o = step_options("transformer");
  o.input = "values";
  o.input_dim = 2;
  SequenceVaeTask task(o, 5);
  const torch::NoGradGuard no_grad;
  const torch::Tensor z = prior_codes(2, 3, 7);
  const auto made = decode(task, z, {4, 1.0, 0});
  ASSERT_EQ(made.size(), 2u);
  ASSERT_EQ(made[0].values.size(), 4u);
  // Feeding the generated means back through the whole-sequence decoder predicts them exactly: reconstruction is the
  // constant.
  Sequences in;
  in.rows = pack_rows({4}, {0});
  std::vector<float> flat;
  for (const auto& step : made[0].values) flat.insert(flat.end(), step.begin(), step.end());
  in.values = torch::tensor(flat).view({4, 2});
  const std::vector<int64_t> ids = {0};
  task::Context ctx(0, 0, false, ids);
  EXPECT_NEAR(task.model().reconstruct(in, z.narrow(0, 0, 1), ctx)[0].item<double>(), 4.0 * 1.8378770664, 1e-4);
}

TEST(Generate, IsAFunctionOfTheSeed) {
  SequenceVaeTask task(step_options("transformer"), 5);
  const torch::Tensor z = prior_codes(3, 3, 1);
  const auto a = decode(task, z, {10, 1.0, 4}), b = decode(task, z, {10, 1.0, 4}), c = decode(task, z, {10, 1.0, 5});
  EXPECT_EQ(a[1].tokens, b[1].tokens);
  EXPECT_TRUE(a[0].tokens != c[0].tokens || a[1].tokens != c[1].tokens || a[2].tokens != c[2].tokens);
  for (const Generated& g : a) {
    EXPECT_LE(g.tokens.size(), 10u);
    for (int64_t token : g.tokens) EXPECT_TRUE(token >= 0 && token < 13 && token != 2);
  }
}

TEST(Generate, TemperatureZeroTakesTheLikeliest) {
  SequenceVaeTask task(step_options("lstm"), 5);
  const torch::Tensor z = prior_codes(2, 3, 1);
  EXPECT_EQ(decode(task, z, {10, 0.0, 4})[0].tokens, decode(task, z, {10, 0.0, 999})[0].tokens);
}

}  // namespace
}  // namespace redline::models::sequence_vae
