// NEST against NeMo's own numbers: tests/fixtures/nest, and tests/fixtures/nest_sizes (made by
// tests/tools/make_nest_fixtures.py) with several books, no biases, other kernels, contexts, factors and post_conv.
// Each through the probe, with the fused kernels and without.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "core/error.h"
#include "device/machine.h"
#include "models/register.h"
#include "models/speech_ssl/preprocessor.h"
#include "train/files/safetensors.h"
#include "train/probe.h"

namespace redline {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, torch::Tensor>;

const fs::path kNestFixtures = REDLINE_FIXTURES;

train::ProbeResult probe(const fs::path& folder, const std::string& fused, fs::path weights = {}) {
  task::Registry registry;
  models::register_all(registry);
  config::RequestSource source;
  source.file = folder / "config.yaml";
  source.overrides = {"model.optim.name=adamw", "model.optim.lr=1e-3", "model.optim.betas=[0.9,0.98]",
                      "model.optim.weight_decay=1e-3", "model.fused_kernels=" + fused};
  train::JobOptions options;
  options.needs_data = false;
  const auto job = train::Job::read(registry, source, device::read_machine_facts(), options);
  if (weights.empty()) weights = folder / "weights.safetensors";
  return train::run_probe(*job, {weights, folder / "batch.safetensors", 5});
}

double largest(const torch::Tensor& t) {
  return t.numel() == 0 ? 0.0 : t.to(torch::kFloat64).abs().max().item<double>();
}
double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return largest(a.to(torch::kFloat64).reshape(b.sizes()) - b.to(torch::kFloat64));
}

void expect_gradients_near(const Tensors& expected, const Tensors& found) {
  double scale = 0.0;
  for (const auto& [name, value] : expected)
    if (name.starts_with("grad.")) scale = std::max(scale, largest(value));
  for (const auto& [name, value] : expected) {
    if (!name.starts_with("grad.")) continue;
    ASSERT_EQ(found.count(name), 1u) << name;
    EXPECT_LE(difference(found.at(name), value) / std::max(largest(value), 1e-3 * scale), 1e-2) << name;
  }
}

struct FixtureCase {
  const char* folder;
  const char* fused;
};
void PrintTo(const FixtureCase& c, std::ostream* out) { *out << c.folder << " fused=" << c.fused; }
class NestFixtureOf : public testing::TestWithParam<FixtureCase> {};

TEST_P(NestFixtureOf, EqualsNeMo) {
  const fs::path folder = kNestFixtures / GetParam().folder;
  const Tensors expected = train::read_safetensors(folder / "expected.safetensors").tensors;
  const train::ProbeResult result = probe(folder, GetParam().fused);
  for (const char* name : {"clean_features", "noisy_features"})
    EXPECT_LE(difference(result.tensors.at(name), expected.at(name)), 1e-3) << name;
  for (const char* name : {"tokens", "feature_lengths", "encoded_lengths"})
    EXPECT_EQ(difference(result.tensors.at(name), expected.at(name)), 0.0) << name;
  for (const char* name : {"encoded", "log_probs"})
    EXPECT_LE(difference(result.tensors.at(name), expected.at(name)) / largest(expected.at(name)), 1e-4) << name;
  expect_gradients_near(expected, result.tensors);
  const torch::Tensor losses = expected.at("losses");
  ASSERT_EQ(result.losses.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    const double want = losses[i].item<double>();
    EXPECT_NEAR(result.losses[static_cast<size_t>(i)], want, 1e-4 * want) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, NestFixtureOf,
    testing::Values(FixtureCase{"nest", "true"}, FixtureCase{"nest", "false"},
                    FixtureCase{"nest_sizes/books_no_bias", "true"}, FixtureCase{"nest_sizes/books_no_bias", "false"},
                    FixtureCase{"nest_sizes/post_conv", "true"}, FixtureCase{"nest_sizes/post_conv", "false"},
                    FixtureCase{"nest_sizes/odd_sizes", "true"}, FixtureCase{"nest_sizes/odd_sizes", "false"},
                    FixtureCase{"nest_sizes/factor_four", "true"}, FixtureCase{"nest_sizes/factor_four", "false"},
                    FixtureCase{"nest_sizes/factor_two_projected", "true"},
                    FixtureCase{"nest_sizes/factor_two_projected", "false"}));

// The probe takes LibTorch's FFT; training takes the room's own, which must give NeMo's features as well.
TEST(NestFixture, TrainingsOwnFeaturesEqualNeMos) {
  const fs::path folder = kNestFixtures / "nest";
  const Tensors batch = train::read_safetensors(folder / "batch.safetensors").tensors;
  const Tensors expected = train::read_safetensors(folder / "expected.safetensors").tensors;
  models::speech::PreprocessorOptions options;
  options.features = 80;
  options.window_size = 0.025;
  options.n_fft = 512;
  options.dither = 0.0;
  models::speech::Preprocessor preprocessor(options);
  std::vector<int64_t> ids;
  for (int64_t b = 0; b < batch.at("audio").size(0); ++b) ids.push_back(b);
  task::Context ctx(1, 0, true, ids);
  const auto found = preprocessor->forward({{batch.at("audio"), batch.at("audio_lengths"), "clean"},
                                            {batch.at("noisy_audio"), batch.at("noisy_audio_lengths"), "noisy"}},
                                           ctx, /*fused=*/true);
  EXPECT_LE(difference(found[0].x_BTF.transpose(1, 2), expected.at("clean_features")), 1e-3);
  EXPECT_LE(difference(found[1].x_BTF.transpose(1, 2), expected.at("noisy_features")), 1e-3);
}

TEST(NestFixture, WeightsOfAnotherSizeAreRefused) {
  EXPECT_THROW(probe(kNestFixtures / "nest", "true", kNestFixtures / "nest_sizes/odd_sizes/weights.safetensors"),
               Error);
}

}  // namespace
}  // namespace redline
