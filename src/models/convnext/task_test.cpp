#include "models/convnext/task.h"

#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include "core/error.h"
#include "models/convnext/model.h"
#include "models/layers/layer_test_tools.h"

namespace redline::models::convnext {
namespace {

using models::testing::largest_difference;
using models::testing::wave;

Options small_options() {
  Options o;
  o.dims = {8, 12, 16, 24};
  o.depths = {1, 1, 2, 1};
  o.num_classes = 6;
  o.image_size = 36;
  o.layer_scale_init = 0.5;
  return o;
}

task::Batch make_batch(const Options& o, int64_t count) {
  task::Batch batch;
  batch.tensors["images"] = wave({count, o.in_channels, o.image_size, o.image_size}, 0.2, torch::kFloat32);
  batch.tensors["labels"] = torch::arange(count, torch::kInt64).remainder(std::min<int64_t>(o.num_classes, 3));
  for (int64_t i = 0; i < count; ++i) batch.sample_ids.push_back(100 + 7 * i);
  return batch;
}

task::Batch part_of(const task::Batch& batch, int64_t begin, int64_t count) {
  task::Batch part;
  for (const auto& [name, tensor] : batch.tensors) part.tensors[name] = tensor.narrow(0, begin, count);
  part.sample_ids.assign(batch.sample_ids.begin() + begin, batch.sample_ids.begin() + begin + count);
  return part;
}

int64_t parameter_count(Options o) {
  int64_t count = 0;
  for (const torch::Tensor& p : make_convnext_task(o, 1)->module().parameters()) count += p.numel();
  return count;
}

TEST(ConvNeXtTask, TinyHasThePublishedNumberOfParameters) {
  Options o;
  o.dims = {96, 192, 384, 768};
  o.depths = {3, 3, 9, 3};
  EXPECT_EQ(parameter_count(o), 28'589'128);
  o.loss = "triplet";
  EXPECT_EQ(parameter_count(o), 27'820'128);
}

TEST(ConvNeXtTask, TheGuidesTwoNumbersAreDimsAndDepths) {
  Options o;
  o.base_channels = 48;
  o.num_blocks = 3;
  o.complete();
  EXPECT_EQ(o.dims, (std::vector<int64_t>{48, 96, 192, 384}));
  EXPECT_EQ(o.depths, (std::vector<int64_t>{3, 3, 3, 3}));
  o.depths = {1, 1};
  EXPECT_THROW(o.complete(), ConfigError);
}

TEST(ConvNeXtTask, ComputedAgainInBackwardGivesTheSameNumbers) {
  for (const bool fused : {true, false}) {
    Options o = small_options();
    o.drop_path_rate = 0.5;
    o.fused_kernels = fused;
    const task::Batch batch = make_batch(o, 5);
    std::vector<torch::Tensor> kept;
    for (const bool again : {false, true}) {
      o.gradient_checkpointing = again;
      const auto task = make_convnext_task(o, 3);
      task::Context ctx(9, 4, true, batch.sample_ids);
      task->loss(batch, ctx).value.backward();
      const std::vector<torch::Tensor> parameters = task->module().parameters();
      if (!again) {
        for (const torch::Tensor& p : parameters) kept.push_back(p.grad().clone());
        continue;
      }
      for (size_t i = 0; i < kept.size(); ++i) EXPECT_TRUE(torch::equal(parameters[i].grad(), kept[i])) << i << fused;
    }
  }
}

// One batch whole and in pieces: the same loss and gradients, stochastic depth on, soft targets or labels.
TEST(ConvNeXtTask, SplitBatchesGiveTheSameGradients) {
  for (const bool fused : {true, false})
    for (const bool soft : {false, true}) {
      Options o = small_options();
      o.drop_path_rate = 0.5;
      o.label_smoothing = 0.1;
      o.fused_kernels = fused;
      const auto task = make_convnext_task(o, 3);
      task::Batch batch = make_batch(o, 8);
      if (soft) batch.tensors["targets"] = torch::softmax(wave({8, 6}, 0.4, torch::kFloat32), 1);
      const auto run = [&](int64_t pieces) {
        for (torch::Tensor& p : task->module().parameters()) p.mutable_grad().reset();
        double value = 0.0;
        for (int64_t i = 0; i < pieces; ++i) {
          const task::Batch part = part_of(batch, i * 8 / pieces, 8 / pieces);
          task::Context ctx(9, 4, true, part.sample_ids);
          const task::Loss loss = task->loss(part, ctx);
          (loss.value * loss.weight / 8.0).backward();
          value += loss.value.item<double>() * loss.weight.item<double>() / 8.0;
        }
        std::vector<torch::Tensor> out{torch::tensor(value)};
        for (const torch::Tensor& p : task->module().parameters()) out.push_back(p.grad().clone());
        return out;
      };
      const auto whole = run(1);
      double scale = 0.0;
      for (size_t i = 1; i < whole.size(); ++i) scale = std::max(scale, whole[i].abs().max().item<double>());
      for (int64_t pieces : {2, 4, 8}) {
        const auto split = run(pieces);
        for (size_t i = 0; i < whole.size(); ++i)
          EXPECT_LE((whole[i] - split[i]).abs().max().item<double>(), 1e-5 * std::max(1.0, scale))
              << pieces << " " << i;
      }
    }
}

TEST(ConvNeXtTask, EveryLossLearns) {
  for (const char* arch : {"convnext", "baseline"})
    for (const char* loss : {"cross_entropy", "center", "supcon", "triplet", "arcface"})
      for (const int64_t embedding : {0, 5}) {
        SCOPED_TRACE(std::string(arch) + " " + loss);
        Options o = small_options();
        o.arch = arch;
        o.base_channels = 8;
        o.loss = loss;
        o.embedding_dim = embedding;
        o.normalize_embedding = embedding > 0;
        const auto task = make_convnext_task(o, 3);
        const task::Batch batch = make_batch(o, 9);
        task::check_batch(task->schema(), batch);
        torch::optim::AdamW optimiser(task->module().parameters(), torch::optim::AdamWOptions(3e-3).weight_decay(0.0));
        double first = 0.0, last = 0.0;
        for (int64_t step = 0; step < 12; ++step) {
          optimiser.zero_grad();
          task::Context ctx(1, step, true, batch.sample_ids);
          const task::Loss value = task->loss(batch, ctx);
          value.value.backward();
          for (const auto& item : task->module().named_parameters())
            ASSERT_TRUE(item.value().grad().defined() && item.value().grad().isfinite().all().item<bool>())
                << item.key();
          for (const auto& [name, metric] : value.metrics) EXPECT_LE(metric.item<double>(), 1.0) << name;
          optimiser.step();
          (step == 0 ? first : last) = value.value.item<double>();
          EXPECT_EQ(ctx.batch_norm_updates().empty(), std::string(arch) == "convnext");
        }
        EXPECT_LT(last, first);
      }
}

TEST(ConvNeXtTask, PredictsTheEmbeddingThatTheProbeShows) {
  Options o = small_options();
  const auto task = make_convnext_task(o, 3);
  const task::Batch batch = make_batch(o, 4);
  task::Context probe(1, 0, false, batch.sample_ids), ctx(1, 0, false, batch.sample_ids);
  probe.want_outputs(true);
  task->loss(batch, probe);
  const auto predicted = task->predict(batch, ctx);
  EXPECT_LE(largest_difference(predicted.at("embedding"), probe.outputs().at("embedding")), 1e-6);
  EXPECT_EQ(probe.outputs().at("features").sizes(), (std::vector<int64_t>{4, 24, 1, 1}));
  o.normalize_embedding = true;
  const auto unit = make_convnext_task(o, 3)->predict(batch, ctx).at("embedding");
  EXPECT_LE((unit.norm(2, {1}) - 1.0).abs().max().item<double>(), 1e-6);
}

TEST(ConvNeXtTask, RanksCountTiesAsRight) {
  Options o = small_options();
  const auto task = make_convnext_task(o, 3);
  for (const auto& item : task->module().named_parameters())
    if (item.key().starts_with("head.fc")) {
      const torch::NoGradGuard no_grad;
      torch::Tensor(item.value()).zero_();
      if (item.key() == "head.fc.bias") torch::Tensor(item.value()).copy_(torch::arange(6, torch::kFloat32));
    }
  task::Batch batch = make_batch(o, 3);
  batch.tensors["labels"] = torch::tensor({5, 1, 0}, torch::kInt64);  // ranks 1, 5 and 6
  task::Context ctx(1, 0, false, batch.sample_ids);
  const task::Loss loss = task->loss(batch, ctx);
  EXPECT_NEAR(loss.metrics.at("accuracy").item<double>(), 1.0 / 3.0, 1e-6);
  EXPECT_NEAR(loss.metrics.at("accuracy_top5").item<double>(), 2.0 / 3.0, 1e-6);
}

TEST(ConvNeXtTask, WordsForBatchesThatDoNotFit) {
  const Options o = small_options();
  const auto task = make_convnext_task(o, 3);
  const auto message = [&](const task::Batch& batch) -> std::string {
    task::Context ctx(1, 0, true, batch.sample_ids);
    try {
      task->loss(batch, ctx);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  task::Batch batch = make_batch(o, 3);
  batch.tensors["labels"][1] = 6;
  EXPECT_NE(message(batch).find("sample 107) has label 6; expected 0 to 5"), std::string::npos) << message(batch);
  batch.tensors.erase("labels");
  EXPECT_NE(message(batch).find("have no labels"), std::string::npos);
  batch = make_batch(o, 3);
  batch.tensors["images"] = batch.tensors["images"].narrow(2, 0, 31);
  EXPECT_NE(message(batch).find("31 x 36; 4 stages need at least 32 x 32"), std::string::npos) << message(batch);
}

TEST(ConvNeXtTask, WorkAndWorstCase) {
  Options o;
  o.dims = {96, 192, 384, 768};
  o.depths = {3, 3, 9, 3};
  const auto task = make_convnext_task(o, 1);
  // The paper's 4.5 G multiply-adds at 224 x 224, forward and backward.
  EXPECT_NEAR(task->flops_per_sample(1.0) / 6.0, 4.46e9, 0.05e9);
  const task::Batch worst = make_convnext_task(small_options(), 1)->worst_case_batch(3);
  EXPECT_EQ(worst.at("images").sizes(), (std::vector<int64_t>{3, 3, 36, 36}));
  EXPECT_TRUE(worst.at("images").is_contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace
}  // namespace redline::models::convnext
