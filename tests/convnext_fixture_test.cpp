// ConvNeXt against timm's own numbers: tests/fixtures/convnext, and tests/fixtures/convnext_sizes (made by
// tests/tools/make_convnext_fixtures.py) with other widths, depths, picture sizes, one channel and ConvNeXt V2. Each
// through the probe, with the fused kernels and without, channels-last and not.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "core/error.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/files/safetensors.h"
#include "train/probe.h"

namespace redline {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, torch::Tensor>;

const fs::path kConvNeXtFixtures = REDLINE_FIXTURES;

train::ProbeResult probe(const std::string& folder, std::vector<std::string> overrides) {
  task::Registry registry;
  models::register_all(registry);
  config::RequestSource source;
  const fs::path files = kConvNeXtFixtures / folder;
  if (folder == "convnext") {
    // The recipe has a schedule, a rate that follows the batch and an average: none of them may show.
    source.file = kConvNeXtFixtures.parent_path().parent_path() / "recipes" / "convnext.yaml";
    source.overrides = {"model.depths=[1,1,2,1]",     "model.dims=[16,24,32,48]",      "model.num_classes=7",
                        "model.layer_scale_init=0.3", "model.loss=cross_entropy",      "model.optim.name=adamw",
                        "model.optim.lr=1e-3",        "model.optim.weight_decay=0.05", "model.optim.no_decay=none"};
  } else {
    source.file = files / "config.yaml";
  }
  source.overrides.insert(source.overrides.end(), overrides.begin(), overrides.end());
  train::JobOptions options;
  options.needs_data = false;
  const auto job = train::Job::read(registry, source, device::read_machine_facts(), options);
  return train::run_probe(*job, {files / "weights.safetensors", files / "batch.safetensors", 5});
}

double largest(const torch::Tensor& t) { return t.to(torch::kFloat64).abs().max().item<double>(); }
double difference(const torch::Tensor& a, const torch::Tensor& b) {
  return largest(a.to(torch::kFloat64).reshape(b.sizes()) - b.to(torch::kFloat64));
}

struct FixtureCase {
  const char* folder;
  const char* fused;
  const char* channels_last;
};
void PrintTo(const FixtureCase& c, std::ostream* out) {
  *out << c.folder << " fused=" << c.fused << " channels_last=" << c.channels_last;
}
class ConvNeXtFixture : public testing::TestWithParam<FixtureCase> {};

TEST_P(ConvNeXtFixture, EqualsTimm) {
  const FixtureCase& c = GetParam();
  const Tensors expected = train::read_safetensors(kConvNeXtFixtures / c.folder / "expected.safetensors").tensors;
  const train::ProbeResult result = probe(c.folder, {std::string("model.fused_kernels=") + c.fused,
                                                     std::string("trainer.channels_last=") + c.channels_last});
  for (const char* name : {"features", "embedding", "logits"})
    EXPECT_LE(difference(result.tensors.at(name), expected.at(name)) / largest(expected.at(name)), 1e-5) << name;
  double scale = 0.0;
  size_t gradients = 0;
  for (const auto& [name, value] : expected)
    if (name.starts_with("grad.")) scale = std::max(scale, largest(value));
  for (const auto& [name, value] : expected) {
    if (!name.starts_with("grad.")) continue;
    ASSERT_EQ(result.tensors.count(name), 1u) << name;
    EXPECT_LE(difference(result.tensors.at(name), value) / std::max(largest(value), 1e-3 * scale), 1e-4) << name;
    ++gradients;
  }
  size_t found = 0;
  for (const auto& [name, value] : result.tensors) found += name.starts_with("grad.") ? 1 : 0;
  EXPECT_EQ(found, gradients);
  ASSERT_EQ(result.losses.size(), 5u);
  for (int64_t i = 0; i < 5; ++i) {
    const double want = expected.at("losses")[i].item<double>();
    EXPECT_NEAR(result.losses[static_cast<size_t>(i)], want, 1e-4 * want) << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, ConvNeXtFixture,
                         testing::Values(FixtureCase{"convnext", "true", "true"},
                                         FixtureCase{"convnext", "true", "false"},
                                         FixtureCase{"convnext", "false", "true"},
                                         FixtureCase{"convnext", "false", "false"},
                                         FixtureCase{"convnext_sizes/odd_pictures", "true", "true"},
                                         FixtureCase{"convnext_sizes/odd_pictures", "true", "false"},
                                         FixtureCase{"convnext_sizes/odd_pictures", "false", "true"},
                                         FixtureCase{"convnext_sizes/grey_one_pixel", "true", "true"},
                                         FixtureCase{"convnext_sizes/grey_one_pixel", "false", "false"},
                                         FixtureCase{"convnext_sizes/version_two", "true", "true"},
                                         FixtureCase{"convnext_sizes/version_two", "false", "false"},
                                         FixtureCase{"convnext_sizes/wide_and_low", "true", "true"},
                                         FixtureCase{"convnext_sizes/wide_and_low", "false", "false"}));

// Controls: what the comparison must notice.
TEST(ConvNeXtFixture, ADecayThatSparesVectorsGivesOtherLosses) {
  const Tensors expected = train::read_safetensors(kConvNeXtFixtures / "convnext/expected.safetensors").tensors;
  const train::ProbeResult result = probe("convnext", {"model.optim.no_decay=[1d,bias]", "model.optim.weight_decay=5"});
  EXPECT_EQ(difference(torch::tensor(result.losses[0]), expected.at("losses")[0]) < 1e-4, true);
  EXPECT_GT(difference(torch::tensor(result.losses[4]), expected.at("losses")[4]), 1e-4);
}
TEST(ConvNeXtFixture, WeightsOfAnotherSizeAreRefused) {
  EXPECT_THROW(probe("convnext", {"model.dims=[16,24,32,40]"}), CheckpointError);
  EXPECT_THROW(probe("convnext", {"model.use_grn=true"}), CheckpointError);
}

}  // namespace
}  // namespace redline
