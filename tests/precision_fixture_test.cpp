// bf16-mixed against 32-true on the fixtures of all tasks: losses of the first steps within 2 %, and gradients that
// point the same way. By the processor's bfloat16 units where it has them, and by the plain way of the same products
// everywhere.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <filesystem>

#include "device/autocast.h"
#include "device/machine.h"
#include "models/layers/panel_gemm_bf16.h"
#include "models/lift_splat/task.h"
#include "models/register.h"
#include "train/probe.h"

namespace redline {
namespace {

namespace fs = std::filesystem;
using models::bf16_panels::Way;

const fs::path kPrecisionFixtures = REDLINE_FIXTURES;

struct Outcome {
  std::vector<double> losses;
  torch::Tensor gradients;  // all of them, flat
};

Outcome probed(const std::string& folder, const std::string& precision) {
  task::Registry registry;
  models::register_all(registry);
  config::RequestSource source;
  const fs::path files = kPrecisionFixtures / folder;
  if (folder == "convnext") {
    source.file = kPrecisionFixtures.parent_path().parent_path() / "recipes" / "convnext.yaml";
    source.overrides = {"model.depths=[1,1,2,1]", "model.dims=[16,24,32,48]", "model.num_classes=7",
                        "model.layer_scale_init=0.3", "model.loss=cross_entropy"};
  } else {
    source.file = files / "config.yaml";
  }
  for (const char* item : {"model.optim.name=adamw", "model.optim.lr=1e-3", "model.optim.weight_decay=1e-3"})
    source.overrides.emplace_back(item);
  source.overrides.push_back("trainer.precision=" + precision);
  source.overrides.emplace_back("trainer.precision_strict=true");
  train::JobOptions options;
  options.needs_data = false;
  const auto job = train::Job::read(registry, source, device::read_machine_facts(), options);
  const train::ProbeResult result =
      train::run_probe(*job, {files / "weights.safetensors", files / "batch.safetensors", 3});
  Outcome out{result.losses, {}};
  std::vector<torch::Tensor> flat;
  for (const auto& [name, value] : result.tensors)
    if (name.starts_with("grad.")) flat.push_back(value.reshape({-1}).to(torch::kFloat64));
  out.gradients = torch::cat(flat);
  return out;
}

// Lift-Splat-Shoot's fixture has formulas in the place of files; here its own start and longest batch serve.
Outcome lift_splat_step(Precision precision) {
  models::lift_splat::Options o;
  o.grid.xbound = o.grid.ybound = {-32.0, 32.0, 2.0};
  o.grid.dbound = {4.0, 28.0, 4.0};
  o.image_size = {64, 96};
  o.cam_channels = 16;
  o.neck_channels = 32;
  o.backbone.embed_dim = 24;
  o.backbone.depths = {1, 1, 2, 1};
  o.backbone.num_heads = {1, 2, 4, 8};
  o.backbone.drop_path_rate = 0.0;
  models::lift_splat::LiftSplatTask task(o, 1);
  // Pictures with something in them: in constant ones what is left of a gradient is rounding.
  task::Batch batch = task.worst_case_batch(2);
  torch::manual_seed(7);
  batch.tensors["imgs"] = torch::randn_like(batch.tensors["imgs"]);
  batch.tensors["binimgs"] = torch::rand_like(batch.tensors["binimgs"]).gt(0.8).to(torch::kFloat32);
  task::Context ctx(1, 0, true, batch.sample_ids);
  task::Loss loss;
  {
    const device::AutocastScope scope(device::DeviceKind::Cpu, precision);
    loss = task.loss(batch, ctx);
  }
  loss.value.backward();
  std::vector<torch::Tensor> flat;
  for (const torch::Tensor& p : task.module().parameters())
    if (p.grad().defined()) flat.push_back(p.grad().reshape({-1}).to(torch::kFloat64));
  return {{loss.value.item<double>()}, torch::cat(flat)};
}

Outcome outcome(const std::string& folder, Precision precision) {
  return folder == "lss" ? lift_splat_step(precision) : probed(folder, precision_name(precision));
}

double cosine(const torch::Tensor& a, const torch::Tensor& b) {
  return (a.dot(b) / (a.norm() * b.norm())).item<double>();
}

struct PrecisionCase {
  const char* folder;
  Way way;
};
void PrintTo(const PrecisionCase& c, std::ostream* out) {
  *out << c.folder << (c.way == Way::kPlain ? " plain" : " units");
}
class PrecisionFixture : public testing::TestWithParam<PrecisionCase> {
 protected:
  void SetUp() override {
    if (GetParam().way == Way::kAsTheMachine && !models::bf16_panels::units())
      GTEST_SKIP() << "this processor has no AVX512-BF16 units; the plain way is tested beside";
    models::bf16_panels::use(GetParam().way);
  }
  void TearDown() override { models::bf16_panels::use(Way::kAsTheMachine); }
};

TEST_P(PrecisionFixture, LossesAndGradientsAreThoseOfFp32) {
  const Outcome plain = outcome(GetParam().folder, Precision::Fp32),
                low = outcome(GetParam().folder, Precision::Bf16Mixed);
  ASSERT_EQ(plain.losses.size(), low.losses.size());
  for (size_t i = 0; i < plain.losses.size(); ++i)
    EXPECT_NEAR(low.losses[i], plain.losses[i], 2e-2 * std::abs(plain.losses[i])) << "step " << i;
  // Lift-Splat's BatchNorms of two samples at random weights: 0.9899 by the units, 0.9884 by LibTorch's own autocast.
  EXPECT_GE(cosine(plain.gradients, low.gradients), std::string(GetParam().folder) == "lss" ? 0.985 : 0.99);
  // The control: it did run in another precision.
  EXPECT_LT(cosine(plain.gradients, low.gradients), 1.0 - 1e-9);
}

INSTANTIATE_TEST_SUITE_P(Tasks, PrecisionFixture,
                         testing::Values(PrecisionCase{"nest", Way::kAsTheMachine}, PrecisionCase{"nest", Way::kPlain},
                                         PrecisionCase{"vae_transformer", Way::kAsTheMachine},
                                         PrecisionCase{"vae_transformer", Way::kPlain},
                                         PrecisionCase{"convnext", Way::kAsTheMachine},
                                         PrecisionCase{"convnext", Way::kPlain},
                                         PrecisionCase{"convnext_sizes/odd_pictures", Way::kAsTheMachine},
                                         PrecisionCase{"lss", Way::kAsTheMachine}, PrecisionCase{"lss", Way::kPlain}));

}  // namespace
}  // namespace redline
