// The sequence VAE against others' numbers: posterior statistics of jxhe/vae-lagging-encoder (tests/fixtures/vae), and
// loss, outputs, gradients and five AdamW losses of the PyTorch peer (bench/vae/export_fixtures.py) for both
// architectures.
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/torch.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/sequence_vae/task.h"
#include "train/files/safetensors.h"

namespace redline {
namespace {

using models::sequence_vae::Options;
using models::sequence_vae::Posteriors;
using models::sequence_vae::PosteriorStatistics;
using models::sequence_vae::SequenceVaeTask;
using Tensors = std::map<std::string, torch::Tensor>;

const std::string kFixtures = REDLINE_FIXTURES;

std::span<const float> floats(const torch::Tensor& x) {
  return {x.const_data_ptr<float>(), static_cast<size_t>(x.numel())};
}

TEST(VaeFixture, PosteriorStatisticsEqualTheReferenceProjects) {
  const Tensors given = train::read_safetensors(kFixtures + "/vae/metrics.safetensors").tensors;
  std::ifstream file(kFixtures + "/vae/facts.json");
  const nlohmann::json facts = nlohmann::json::parse(file);
  const torch::Tensor mean = given.at("mu"), log_variance = given.at("logvar");
  const torch::Tensor draw = mean + (log_variance * 0.5).exp() * given.at("eps");
  const Posteriors all{mean.size(0), mean.size(1), floats(mean), floats(log_variance), floats(draw)};
  const models::sequence_vae::Information information = models::sequence_vae::mutual_information(all);
  PosteriorStatistics statistics(mean.size(1));
  statistics.add(all, information);
  EXPECT_NEAR(statistics.kl(), facts.at("kl"), 1e-5 * facts.at("kl").get<double>());
  EXPECT_NEAR(information.closed_form, facts.at("mutual_information"),
              1e-5 * facts.at("mutual_information").get<double>());
  EXPECT_EQ(statistics.active_units(facts.at("threshold")), facts.at("active_units").get<int64_t>());
  EXPECT_NEAR(std::log(static_cast<double>(all.n)), facts.at("log_n"), 1e-9);
  for (int64_t j = 0; j < mean.size(1); ++j) {
    const double kl = given.at("kl_per_dim")[j].item<double>(),
                 variance = given.at("variance_of_means")[j].item<double>();
    EXPECT_NEAR(statistics.kl_per_dim()[static_cast<size_t>(j)], kl, 1e-5 * std::max(1e-3, std::abs(kl))) << j;
    EXPECT_NEAR(statistics.variance_of_means()[static_cast<size_t>(j)], variance, 1e-5 * std::max(1e-3, variance)) << j;
  }
}

Options transformer_options() {
  Options o;
  o.vocab_size = 50;
  o.d_model = 32;
  o.n_heads = 4;
  o.d_ff = 64;
  o.n_encoder_layers = o.n_decoder_layers = 2;
  o.latent_dim = 8;
  o.dropout = 0.0;
  o.max_sequence_length = 40;
  return o;
}
Options lstm_options() {
  Options o;
  o.architecture = "lstm";
  o.vocab_size = 40;
  o.latent_dim = 4;
  o.max_sequence_length = 40;
  o.lstm = {16, 24, 24, 0.0, 0.0};
  return o;
}

void load(torch::nn::Module& module, const Tensors& weights) {
  const torch::NoGradGuard no_grad;
  size_t used = 0;
  for (auto& item : module.named_parameters()) {
    ASSERT_EQ(weights.count(item.key()), 1u) << item.key() << " is not in the peer's weights";
    item.value().copy_(weights.at(item.key()));
    ++used;
  }
  EXPECT_EQ(used, weights.size()) << "the peer has parameters that the model lacks";
}

double relative(const torch::Tensor& got, const torch::Tensor& expected, double least) {
  const torch::Tensor a = got.detach().to(torch::kFloat64), b = expected.to(torch::kFloat64);
  return (a - b).abs().max().item<double>() / std::max(least, b.abs().max().item<double>());
}

void expect_equal_to_peer(const Options& options, const std::string& name) {
  const std::string folder = kFixtures + "/" + name;
  SequenceVaeTask task(options, 1);
  load(task.module(), train::read_safetensors(folder + "/weights.safetensors").tensors);
  task::Batch batch;
  batch.tensors = train::read_safetensors(folder + "/batch.safetensors").tensors;
  batch.sample_ids = {0, 1, 2, 3};
  task::check_batch(task.schema(), batch);
  const Tensors expected = train::read_safetensors(folder + "/expected.safetensors").tensors;
  torch::optim::AdamW optimiser(task.module().parameters(),
                                torch::optim::AdamWOptions(1e-3).betas({0.9, 0.98}).weight_decay(0.01));
  double largest = 0.0;
  for (const auto& [key, value] : expected)
    if (key.rfind("grad.", 0) == 0) largest = std::max(largest, value.abs().max().item<double>());
  for (int64_t step = 0; step < 5; ++step) {
    optimiser.zero_grad();
    task::Context ctx(1, step, true, batch.sample_ids);
    ctx.want_outputs(step == 0);
    const task::Loss loss = task.loss(batch, ctx);
    loss.value.backward();
    EXPECT_LE(relative(loss.value, expected.at("losses")[step], 1e-12), 1e-4) << "loss of step " << step;
    if (step == 0) {
      for (const char* output : {"loss", "mu", "logvar", "z", "kl", "reconstruction"})
        EXPECT_LE(relative(ctx.outputs().at(output), expected.at(output), 1e-12), 1e-4) << output;
      for (const auto& item : task.module().named_parameters())
        EXPECT_LE(relative(item.value().grad(), expected.at("grad." + item.key()), 1e-3 * largest), 1e-4) << item.key();
    }
    optimiser.step();
  }
}

TEST(VaeFixture, TransformerEqualsThePeer) { expect_equal_to_peer(transformer_options(), "vae_transformer"); }
TEST(VaeFixture, LstmEqualsThePeer) { expect_equal_to_peer(lstm_options(), "vae_lstm"); }

}  // namespace
}  // namespace redline
