// Lift-Splat-Shoot against the PyTorch peer at two sizes (tests/tools/make_lss_fixtures.py): outputs, gradients and
// three SGD losses, with the fused kernels and without. Weights and batch are formulas, here and there.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "models/lift_splat/task.h"
#include "train/files/safetensors.h"

namespace redline {
namespace {

using models::lift_splat::LiftSplatTask;
using models::lift_splat::Options;
using Tensors = std::map<std::string, torch::Tensor>;

struct LssCase {
  const char* name;
  std::vector<int64_t> size;
  int64_t width;
  std::vector<int64_t> layers, heads;
  int64_t neck, channels, batch, cameras;
  bool fused;
};
void PrintTo(const LssCase& c, std::ostream* out) { *out << c.name << " fused=" << c.fused; }

// Between -1 and 1: a hash of the place.
torch::Tensor noise(std::vector<int64_t> shape, double seed) {
  int64_t count = 1;
  for (int64_t extent : shape) count *= extent;
  torch::Tensor out = torch::empty(shape);
  float* to = out.mutable_data_ptr<float>();
  for (int64_t i = 0; i < count; ++i) {
    auto at = static_cast<uint32_t>(i + static_cast<int64_t>(seed * 16) * 0x9E3779B1);
    for (int round = 0; round < 2; ++round) at = (at ^ at >> 16) * 0x45D9F3Bu;
    to[i] = static_cast<float>(static_cast<double>(at ^ at >> 16) / 2147483648.0 - 1.0);
  }
  return out;
}

void fill(torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> sorted;
  for (const auto& item : module.named_parameters()) sorted[item.key()] = item.value();
  double phase = 0.0;
  for (auto& [name, p] : sorted) {
    const torch::Tensor values = noise(p.sizes().vec(), phase);
    phase += 1.0;
    if (p.dim() < 2)
      p.copy_((name.ends_with("weight") ? 1.0 : 0.0) + 0.1 * values);
    else if (name.find("table") != std::string::npos)
      p.copy_(0.2 * values);
    else
      p.copy_(values * std::sqrt(3.0 * static_cast<double>(p.size(0)) / static_cast<double>(p.numel())));
  }
}

task::Batch batch_of(const LssCase& c, const Options& o) {
  const int64_t b = c.batch, n = c.cameras, h = c.size[0], w = c.size[1];
  task::Batch batch;
  torch::Tensor rots = torch::zeros({b, n, 3, 3});
  for (int64_t i = 0; i < b; ++i) {
    batch.sample_ids.push_back(i);
    for (int64_t k = 0; k < n; ++k) {
      const double yaw = 1.1 * static_cast<double>(k) + 0.3 * static_cast<double>(i);
      const auto s = static_cast<float>(std::sin(yaw)), q = static_cast<float>(std::cos(yaw));
      rots[i][k] = torch::tensor({s, 0.0f, q, -q, 0.0f, s, 0.0f, -1.0f, 0.0f}).view({3, 3});
    }
  }
  const auto wide = static_cast<float>(static_cast<double>(w) * 0.8), x = static_cast<float>(w) * 0.5f,
             y = static_cast<float>(h) * 0.5f;
  batch.tensors["imgs"] = noise({b, n, 3, h, w}, 0.1);
  batch.tensors["rots"] = rots;
  batch.tensors["trans"] = 0.3 * noise({b, n, 3}, 0.2);
  batch.tensors["intrins"] =
      torch::tensor({wide, 0.0f, x, 0.0f, wide, y, 0.0f, 0.0f, 1.0f}).view({3, 3}).expand({b, n, 3, 3}).contiguous();
  batch.tensors["post_rots"] = torch::eye(3).expand({b, n, 3, 3}).contiguous();
  torch::Tensor moved = 0.5 * noise({b, n, 3}, 0.7);
  moved.select(2, 2).zero_();
  batch.tensors["post_trans"] = moved;
  batch.tensors["binimgs"] = noise({b, 1, o.grid.cells(0), o.grid.cells(1)}, 0.5).gt(0.9).to(torch::kFloat32);
  return batch;
}

double relative(const torch::Tensor& got, const torch::Tensor& expected) {
  const torch::Tensor a = got.detach().to(torch::kFloat64).reshape(expected.sizes()), b = expected.to(torch::kFloat64);
  return (a - b).abs().max().item<double>() / std::max(1e-12, b.abs().max().item<double>());
}

class LssFixture : public testing::TestWithParam<LssCase> {};

TEST_P(LssFixture, EqualsThePeer) {
  const LssCase& c = GetParam();
  Options o;
  o.grid.xbound = {-32.0, 32.0, 2.0};
  o.grid.ybound = {-24.0, 24.0, 2.0};
  o.grid.zbound = {-4.0, 4.0, 4.0};
  o.grid.dbound = {4.0, 28.0, 4.0};
  o.image_size = c.size;
  o.cam_channels = c.channels;
  o.neck_channels = c.neck;
  o.backbone.embed_dim = c.width;
  o.backbone.depths = c.layers;
  o.backbone.num_heads = c.heads;
  o.backbone.drop_path_rate = 0.0;
  o.fused_kernels = c.fused;
  LiftSplatTask task(o, 1);
  fill(task.module());
  const task::Batch batch = batch_of(c, o);
  task::check_batch(task.schema(), batch);
  const Tensors expected =
      train::read_safetensors(std::string(REDLINE_FIXTURES) + "/lss/" + c.name + ".safetensors").tensors;
  for (int64_t step = 0; step < 3; ++step) {
    task.module().zero_grad();
    task::Context ctx(1, step, true, batch.sample_ids);
    ctx.want_outputs(step == 0);
    const task::Loss loss = task.loss(batch, ctx);
    loss.value.backward();
    EXPECT_LE(relative(loss.value, expected.at("losses")[step]), 1e-3) << "loss of step " << step;
    const torch::NoGradGuard no_grad;
    if (step == 0) {
      EXPECT_LE(relative(ctx.outputs().at("preds"), expected.at("preds")), 1e-3);
      const torch::Tensor features = ctx.outputs().at("camera_features").permute({0, 2, 3, 1}).contiguous();
      EXPECT_LE(relative(features, expected.at("camera_features")), 1e-3);
      for (const auto& item : task.module().named_parameters())
        if (expected.count("grad." + item.key()) != 0) {
          EXPECT_LE(relative(item.value().grad(), expected.at("grad." + item.key())), 5e-2) << item.key();
        }
    }
    for (torch::Tensor& p : task.module().parameters())
      if (p.grad().defined()) p.sub_(p.grad() * 0.01);
  }
}

std::vector<LssCase> lss_cases() {
  std::vector<LssCase> cases;
  for (const bool fused : {true, false}) {
    cases.push_back({"padded", {96, 160}, 16, {2, 2, 2, 2}, {2, 2, 4, 4}, 24, 8, 2, 5, fused});
    cases.push_back({"narrow", {64, 96}, 12, {1, 2, 1, 1}, {1, 2, 2, 4}, 16, 5, 3, 2, fused});
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Sizes, LssFixture, testing::ValuesIn(lss_cases()));

}  // namespace
}  // namespace redline
