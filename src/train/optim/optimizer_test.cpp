#include "train/optim/optimizer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>

#include "core/error.h"
#include "train/optim/ema.h"
#include "train/optim/gradients.h"
#include "train/optim/parameter_rules.h"

namespace redline::train {
namespace {

struct RecordedCase {
  std::string name;
  OptimConfig settings;
  double lr, weight_decay, clip = 0, ema_decay = 0;
};

std::vector<RecordedCase> recorded_cases() {
  OptimConfig adamw, amsgrad, adam, sgd, momentum, nesterov;
  adamw.betas[1] = 0.98;
  amsgrad.amsgrad = true;
  adam.name = "adam";
  adam.eps = 1e-6;
  sgd.name = momentum.name = nesterov.name = "sgd";
  momentum.momentum = nesterov.momentum = 0.9;
  momentum.dampening = 0.1;
  nesterov.nesterov = true;
  return {{"adamw", adamw, 0.01, 0.05},
          {"adamw_amsgrad", amsgrad, 0.01, 0.01},
          {"adam", adam, 0.02, 0.1},
          {"sgd", sgd, 0.1, 0.0},
          {"sgd_momentum", momentum, 0.05, 0.01},
          {"sgd_nesterov", nesterov, 0.05, 0.0},
          {"adamw_clipped", OptimConfig{}, 0.01, 0.05, 5.0},
          {"sgd_clipped_ema", sgd, 0.1, 0.0, 2.0, 0.9}};
}

const std::map<std::string, torch::Tensor>& recorded() {
  static const auto file = read_safetensors(REDLINE_FIXTURES "/trajectories/optimizers.safetensors");
  return file.tensors;
}

std::vector<OptimizedParameter> start_parameters(double weight_decay) {
  std::vector<OptimizedParameter> parameters;
  for (int i = 0; i < 3; ++i)
    parameters.push_back({fmt::format("p{}", i),
                          recorded().at(fmt::format("start.p{}", i)).clone().requires_grad_(true), 1.0, weight_decay});
  return parameters;
}

void set_gradients(const Optimizer& optimizer, int step, double factor = 1.0) {
  for (const OptimizedParameter& p : optimizer.parameters()) {
    torch::Tensor value = p.value;
    value.mutable_grad() = recorded().at("grad" + std::to_string(step) + "." + p.name) * factor;
  }
}

void expect_step(const RecordedCase& c, const Optimizer& optimizer, int step) {
  for (const OptimizedParameter& p : optimizer.parameters()) {
    const torch::Tensor& expected = recorded().at(c.name + ".step" + std::to_string(step) + "." + p.name);
    const double scale = expected.abs().max().item<double>();
    EXPECT_LT((p.value.detach() - expected).abs().max().item<double>(), 2e-6 * scale)
        << c.name << " step " << step << " " << p.name;
  }
}

// One committed step as the loop makes it: check, clip, one divisor.
double commit(const RecordedCase& c, Optimizer& optimizer, double divisor) {
  const GradientCheck check = check_gradients(optimizer.gradients());
  EXPECT_TRUE(check.finite);
  const double norm = check.norm / divisor;
  optimizer.step(c.lr, divisor / clip_factor(norm, c.clip));
  return norm;
}

TEST(Optimizer, FollowsPyTorchsTrajectories) {
  for (const RecordedCase& c : recorded_cases()) {
    Optimizer optimizer(c.settings, start_parameters(c.weight_decay));
    NamedTensors model;
    for (const OptimizedParameter& p : optimizer.parameters()) model.emplace_back(p.name, p.value);
    Ema ema({true, c.ema_decay}, model);
    for (int step = 0; step < 12; ++step) {
      set_gradients(optimizer, step);
      commit(c, optimizer, 1.0);
      if (c.ema_decay > 0) ema.update(1);
      expect_step(c, optimizer, step);
    }
    if (c.ema_decay == 0) continue;
    for (const auto& [name, average] : ema.averages())
      EXPECT_TRUE(torch::allclose(average, recorded().at(c.name + ".ema." + name), 1e-5, 1e-6)) << name;
  }
}

// Gradients that come scaled (loss scale, total weight) are divided while the kernel reads them.
struct SmallJob {
  torch::Tensor matrix = torch::tensor({{0.5f, -1.0f, 2.0f}, {0.25f, 0.75f, -0.125f}}).requires_grad_(true);
  torch::Tensor vector = torch::tensor({0.1f, -0.2f, 0.3f}).requires_grad_(true);
  Optimizer optimizer;
  explicit SmallJob(const OptimConfig& config, double decay)
      : optimizer(config, {{"matrix", matrix, 1.0, decay}, {"vector", vector, 1.0, decay}}) {}
  void set_gradients(int step, double factor = 1.0) {
    const double sign = step == 2 ? -1.0 : 1.0;
    matrix.mutable_grad() = torch::tensor({{0.3f, -0.1f, 0.2f}, {-0.4f, 0.5f, 0.05f}}) * ((step + 1) * sign * factor);
    vector.mutable_grad() = torch::tensor({0.02f, -0.3f, 0.1f}) * ((step + 1) * factor);
  }
};

// Recorded from torch 2.13: torch.optim.Adafactor(lr=0.05, weight_decay=0.1), four steps.
TEST(Optimizer, AdafactorIsPyTorchs) {
  OptimConfig config;
  config.name = "adafactor";
  for (const double divisor : {1.0, 8.0}) {
    SmallJob job(config, 0.1);
    for (int step = 0; step < 4; ++step) {
      job.set_gradients(step, divisor);
      EXPECT_TRUE(job.optimizer.step(0.05, divisor));
    }
    const torch::Tensor matrix =
        torch::tensor({{0.38630268f, -0.94623059f, 1.79250956f}, {0.325644076f, 0.636310399f, -0.146956176f}});
    EXPECT_TRUE(torch::allclose(job.matrix, matrix, 1e-6, 1e-7)) << job.matrix;
    EXPECT_TRUE(torch::allclose(job.vector, torch::tensor({0.0583062246f, -0.156321183f, 0.254336149f}), 1e-6, 1e-7));
  }
}

// The paper's algorithm written out in doubles, number by number.
TEST(Optimizer, LionIsItsPapersAlgorithm) {
  OptimConfig config;
  config.name = "lion";
  config.betas = {0.9, 0.99};
  SmallJob job(config, 0.1);
  std::vector<double> weights{0.5, -1.0, 2.0, 0.25, 0.75, -0.125}, average(6, 0.0);
  const double lr = 0.01;
  for (int step = 0; step < 5; ++step) {
    job.set_gradients(step, 4.0);
    const torch::Tensor grad = job.matrix.grad().flatten() / 4.0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const auto g = grad[static_cast<int64_t>(i)].item<double>();
      const double mixed = 0.9 * average[i] + 0.1 * g;
      weights[i] -= lr * ((mixed > 0) - (mixed < 0) + 0.1 * weights[i]);
      average[i] = 0.99 * average[i] + 0.01 * g;
    }
    job.optimizer.step(lr, 4.0);
  }
  for (size_t i = 0; i < weights.size(); ++i)
    EXPECT_NEAR(job.matrix.flatten()[static_cast<int64_t>(i)].item<double>(), weights[i], 1e-6);
}

// What is kept made ready of a weight (models/layers/packed_weights.h) goes by the weight's version.
TEST(Optimizer, EveryStepRaisesTheVersions) {
  for (const char* name : {"adamw", "adam", "sgd", "lion", "adafactor"})
    for (const auto type : {torch::kFloat32, torch::kFloat64}) {  // our own kernel and LibTorch's
      OptimConfig config;
      config.name = name;
      torch::Tensor weight = torch::ones({2, 3}, type).requires_grad_(true);
      Optimizer optimizer(config, {{"weight", weight, 1.0, 0.0}});
      for (int step = 0; step < 2; ++step) {
        weight.mutable_grad() = torch::full({2, 3}, 0.5, type);
        const auto before = weight._version();
        optimizer.step(0.1, 1.0);
        EXPECT_GT(weight._version(), before) << name << " " << type << " step " << step;
      }
    }
}

TEST(Optimizer, TheOthersKeepLittleAndContinueBitByBit) {
  for (const char* name : {"lion", "adafactor"}) {
    OptimConfig config;
    config.name = name;
    SmallJob whole(config, 0.0), stopped(config, 0.0);
    for (int step = 0; step < 4; ++step) {
      whole.set_gradients(step);
      whole.optimizer.step(0.05, 1.0);
    }
    for (int step = 0; step < 2; ++step) {
      stopped.set_gradients(step);
      stopped.optimizer.step(0.05, 1.0);
    }
    SmallJob resumed(config, 0.0);
    {
      const torch::NoGradGuard no_grad;
      resumed.matrix.copy_(stopped.matrix);
      resumed.vector.copy_(stopped.vector);
    }
    const NamedTensors state = stopped.optimizer.state();
    int64_t numbers = 0;
    for (const auto& [key, tensor] : state) numbers += key == "steps" ? 0 : tensor.numel();
    EXPECT_EQ(numbers, std::string(name) == "lion" ? 9 : 2 + 3 + 3);
    resumed.optimizer.load_state({state.begin(), state.end()});
    for (int step = 2; step < 4; ++step) {
      resumed.set_gradients(step);
      resumed.optimizer.step(0.05, 1.0);
    }
    EXPECT_TRUE(torch::equal(resumed.matrix, whole.matrix)) << name;
    EXPECT_TRUE(torch::equal(resumed.vector, whole.vector)) << name;
  }
}

TEST(Optimizer, TheDivisorIsTheSameAsUnscaledGradients) {
  for (const RecordedCase& c : recorded_cases()) {
    Optimizer optimizer(c.settings, start_parameters(c.weight_decay));
    for (int step = 0; step < 12; ++step) {
      set_gradients(optimizer, step, 1024.0);
      commit(c, optimizer, 1024.0);
      expect_step(c, optimizer, step);
    }
  }
}

TEST(Optimizer, StateRoundTripsThroughAFile) {
  for (const RecordedCase& c : recorded_cases()) {
    Optimizer a(c.settings, start_parameters(c.weight_decay)), b(c.settings, start_parameters(c.weight_decay));
    for (int step = 0; step < 6; ++step) {
      set_gradients(a, step);
      commit(c, a, 1.0);
    }
    std::map<std::string, torch::Tensor> state;
    for (const auto& [name, tensor] : a.state()) state[name] = tensor.clone();
    b.load_state(state);
    for (size_t i = 0; i < 3; ++i) {
      const torch::NoGradGuard no_grad;
      torch::Tensor value = b.parameters()[i].value;
      value.copy_(a.parameters()[i].value);
    }
    for (int step = 6; step < 12; ++step) {
      set_gradients(a, step);
      set_gradients(b, step);
      commit(c, a, 1.0);
      commit(c, b, 1.0);
    }
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(torch::equal(a.parameters()[i].value, b.parameters()[i].value)) << c.name;
  }
}

TEST(Optimizer, AForeignStateIsRefusedByName) {
  Optimizer optimizer(OptimConfig{}, start_parameters(0));
  std::map<std::string, torch::Tensor> state;
  for (const auto& [name, tensor] : optimizer.state()) state[name] = tensor.clone();
  auto renamed = state;
  renamed["exp_avg.other"] = renamed.extract("exp_avg.p0").mapped();
  EXPECT_THROW(optimizer.load_state(renamed), CheckpointError);
  auto reshaped = state;
  reshaped["exp_avg.p0"] = torch::zeros({2});
  EXPECT_THROW(optimizer.load_state(reshaped), CheckpointError);
  state.erase("steps");
  EXPECT_THROW(optimizer.load_state(state), CheckpointError);
}

TEST(Optimizer, ParametersWithoutGradientKeepTheirOwnCount) {
  const RecordedCase c{"adamw", recorded_cases()[0].settings, 0.01, 0.05};
  Optimizer optimizer(c.settings, start_parameters(c.weight_decay));
  torch::Tensor late = optimizer.parameters()[2].value;
  const torch::Tensor before = late.detach().clone();
  for (int step = 0; step < 3; ++step) {
    set_gradients(optimizer, step);
    late.mutable_grad().reset();
    commit(c, optimizer, 1.0);
  }
  EXPECT_TRUE(torch::equal(before, late.detach()));
  late.mutable_grad() = recorded().at("grad0.p2").clone();
  commit(c, optimizer, 1.0);  // its first step is step 1 of its own bias correction
  EXPECT_TRUE(torch::allclose(late.detach(), recorded().at("adamw.step0.p2"), 1e-5, 1e-7));
}

// Our kernel against LibTorch's fused one, with every tail length, and its own bits for any thread count.
TEST(Optimizer, TheKernelIsLibTorchsFusedStep) {
  const int before = at::get_num_threads();
  for (const int64_t count : {1, 7, 8, 9, 33, 16384, 16391, 70001}) {
    for (const bool adamw : {true, false}) {
      const torch::Tensor start = torch::randn({count}), gradient = torch::randn({count}) * 3;
      std::vector<torch::Tensor> results;
      for (const int threads : {1, 2}) {
        at::set_num_threads(threads);
        torch::Tensor value = start.clone(), first = start * 0.1, second = start.abs() * 0.2;
        const AdamScalars scalars = adam_scalars({0.02, 0.9, 0.98, 1e-8, 0.1, 4.0, adamw, /*maximize=*/false}, 3);
        EXPECT_TRUE(adam_step({{value.data_ptr<float>(), gradient.const_data_ptr<float>(), first.data_ptr<float>(),
                                second.data_ptr<float>(), nullptr, count, scalars}}));
        results.push_back(torch::cat({value, first, second}));
      }
      EXPECT_TRUE(torch::equal(results[0], results[1]));
      torch::Tensor value = start.clone(), first = start * 0.1, second = start.abs() * 0.2, scaled = gradient.clone();
      const std::vector<torch::Tensor> values = {value}, grads = {scaled}, ms = {first}, vs = {second},
                                       steps = {torch::tensor(3.0F)};
      if (adamw)
        at::_fused_adamw_(values, grads, ms, vs, {}, steps, 0.02, 0.9, 0.98, 0.1, 1e-8, false, false,
                          torch::tensor(4.0F));
      else
        at::_fused_adam_(values, grads, ms, vs, {}, steps, 0.02, 0.9, 0.98, 0.1, 1e-8, false, false,
                         torch::tensor(4.0F));
      EXPECT_TRUE(torch::allclose(results[0], torch::cat({value, first, second}), 2e-6, 1e-6)) << count;
    }
  }
  at::set_num_threads(before);
}

TEST(Optimizer, TellsWhetherTheNewWeightsAreFinite) {
  for (const char* kind : {"adamw", "sgd"}) {
    const RecordedCase c = kind == std::string("sgd") ? recorded_cases()[3] : recorded_cases()[0];
    for (const size_t which : {size_t{0}, size_t{2}}) {
      Optimizer optimizer(c.settings, start_parameters(0));
      set_gradients(optimizer, 0);
      EXPECT_TRUE(optimizer.step(0.1, 1.0));
      set_gradients(optimizer, 1);
      torch::Tensor grad = optimizer.parameters()[which].value.grad();
      grad.view(-1)[grad.numel() - 1] = std::numeric_limits<float>::infinity();
      EXPECT_FALSE(optimizer.step(0.1, 1.0)) << kind;
    }
  }
}

TEST(Optimizer, ChannelsLastWeightsTakeTheSameStep) {
  const torch::Tensor start = torch::linspace(-1, 1, 2 * 3 * 4 * 4).view({2, 3, 4, 4});
  const torch::Tensor grad = torch::linspace(1, -2, 2 * 3 * 4 * 4).view({2, 3, 4, 4});
  torch::Tensor plain = start.clone().requires_grad_(true);
  torch::Tensor last =
      start.contiguous(at::MemoryFormat::ChannelsLast).clone(at::MemoryFormat::Preserve).requires_grad_(true);
  Optimizer a(OptimConfig{}, {{"w", plain, 1.0, 0.1}}), b(OptimConfig{}, {{"w", last, 1.0, 0.1}});
  plain.mutable_grad() = grad.clone();
  last.mutable_grad() = grad.clone();  // the wrong layout on purpose
  a.step(0.1, 1.0);
  b.step(0.1, 1.0);
  EXPECT_TRUE(torch::allclose(plain, last));
}

TEST(Optimizer, OnlyTheNamedGroupsMove) {
  auto parameters = start_parameters(0.1);
  parameters[0].group = "encoder";
  parameters[1].group = "decoder";
  Optimizer optimizer(OptimConfig{}, parameters);
  set_gradients(optimizer, 0);
  std::vector<torch::Tensor> before;
  for (const OptimizedParameter& p : optimizer.parameters()) before.push_back(p.value.detach().clone());
  optimizer.step(0.1, 1.0, {"encoder"});
  EXPECT_FALSE(torch::equal(before[0], optimizer.parameters()[0].value));
  EXPECT_TRUE(torch::equal(before[1], optimizer.parameters()[1].value));
  EXPECT_TRUE(torch::equal(before[2], optimizer.parameters()[2].value));
}

TEST(Gradients, NormAndFinitenessMatchThePlainReference) {
  std::vector<torch::Tensor> gradients = {torch::randn({1000, 77}), torch::Tensor(), torch::randn({3}),
                                          torch::randn({64, 64}, torch::kFloat64), torch::randn({0})};
  const GradientCheck fast = check_gradients(gradients), plain = check_gradients_plain(gradients);
  double square = 0;
  for (const torch::Tensor& g : gradients)
    if (g.defined()) square += g.to(torch::kFloat64).square().sum().item<double>();
  EXPECT_TRUE(fast.finite);
  EXPECT_NEAR(fast.norm, std::sqrt(square), 1e-9 * std::sqrt(square));
  EXPECT_NEAR(fast.norm, plain.norm, 1e-12 * plain.norm);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  EXPECT_EQ(check_gradients(gradients).norm, fast.norm);
  at::set_num_threads(threads);
  EXPECT_FALSE(first_non_finite(gradients));
  for (double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                     -std::numeric_limits<double>::infinity()}) {
    for (size_t which : {size_t{0}, size_t{2}, size_t{3}}) {
      auto poisoned = gradients;
      poisoned[which] = poisoned[which].clone();
      poisoned[which].view(-1)[poisoned[which].numel() - 1] = bad;
      const GradientCheck check = check_gradients(poisoned);
      EXPECT_FALSE(check.finite);
      EXPECT_EQ(check.first_non_finite, which);
      EXPECT_FALSE(check_gradients_plain(poisoned).finite);
      EXPECT_EQ(first_non_finite(poisoned), which);
    }
  }
}

TEST(Gradients, LargeFiniteValuesAreFinite) {
  const std::vector<torch::Tensor> gradients = {torch::full({1000}, 3e38)};
  const GradientCheck check = check_gradients(gradients);
  EXPECT_TRUE(check.finite);
  EXPECT_NEAR(check.norm, 3e38 * std::sqrt(1000.0), 1e33);
}

TEST(Ema, SwapTwiceIsNothingAndIntegersAreCopied) {
  torch::Tensor weight = torch::ones({4}), count = torch::zeros({}, torch::kInt64);
  Ema ema({true, 0.5}, {{"w", weight}, {"n", count}});
  weight.fill_(3);
  count.fill_(7);
  ema.update(1);
  ema.swap();
  EXPECT_EQ(weight[0].item<float>(), 2.0f);
  EXPECT_EQ(count.item<int64_t>(), 7);
  ema.swap();
  EXPECT_EQ(weight[0].item<float>(), 3.0f);
  EXPECT_THROW(ema.load({{"w", torch::ones({4})}}), CheckpointError);
  ema.load({{"w", torch::full({4}, 9.0)}, {"n", torch::ones({}, torch::kInt64)}});
  EXPECT_EQ(ema.averages()[0].second[0].item<float>(), 9.0f);
}

struct RuleModule : torch::nn::Module {
  RuleModule() {
    fc = register_module("fc", torch::nn::Linear(3, 4));
    norm = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
    table = register_parameter("relative_position_bias_table", torch::zeros({5, 2}));
    frozen = register_parameter("frozen", torch::zeros({2, 2}), false);
  }
  torch::nn::Linear fc{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::Tensor table, frozen;
};

std::map<std::string, std::pair<double, double>> rules_of(const ParameterRules& rules,
                                                          const std::vector<task::ParameterGroup>& groups = {},
                                                          std::vector<std::string>* unused = nullptr) {
  RuleModule module;
  std::map<std::string, std::pair<double, double>> result;
  for (const OptimizedParameter& p : apply_parameter_rules(module, groups, rules, unused))
    result[p.name] = {p.lr_scale, p.weight_decay};
  return result;
}

TEST(ParameterRules, DecayExclusionsAndFrozenParameters) {
  const auto all = rules_of({0.05, {}, {}});
  EXPECT_EQ(all.size(), 5u);
  EXPECT_EQ(all.at("norm1.weight").second, 0.05);
  const auto convnext = rules_of({0.05, {"1d", "bias"}, {}});
  EXPECT_EQ(convnext.at("fc.weight").second, 0.05);
  EXPECT_EQ(convnext.at("fc.bias").second, 0.0);
  EXPECT_EQ(convnext.at("norm1.weight").second, 0.0);
  EXPECT_EQ(convnext.at("relative_position_bias_table").second, 0.05);
}

TEST(ParameterRules, CustomKeysLongestFirst) {
  std::vector<std::string> unused;
  const auto swin = rules_of({0.01,
                              {},
                              {{"norm", 1.0, 0.0},
                               {"relative_position_bias_table", 1.0, 0.0},
                               {"norm1.bias", 0.5, 1.0},
                               {"absolute_pos_embed", 1.0, 0.0}}},
                             {}, &unused);
  EXPECT_EQ(swin.at("norm1.weight").second, 0.0);
  EXPECT_EQ(swin.at("norm1.bias"), (std::pair{0.5, 0.01}));
  EXPECT_EQ(swin.at("relative_position_bias_table").second, 0.0);
  EXPECT_EQ(swin.at("fc.weight").second, 0.01);
  EXPECT_THAT(unused, ::testing::ElementsAre("absolute_pos_embed"));
}

TEST(ParameterRules, TaskGroupsAndTheirMistakes) {
  const auto grouped = rules_of({0.1, {}, {}}, {{"head", {"fc.weight"}, 0.1, 0.7}});
  EXPECT_EQ(grouped.at("fc.weight"), (std::pair{0.1, 0.7}));
  EXPECT_EQ(grouped.at("fc.bias"), (std::pair{1.0, 0.1}));
  EXPECT_THROW(rules_of({0.1, {}, {}}, {{"head", {"nope"}, 1.0, {}}}), ConfigError);
  EXPECT_THROW(rules_of({0.1, {}, {}}, {{"a", {"fc.bias"}, 1.0, {}}, {"b", {"fc.bias"}, 1.0, {}}}), ConfigError);
}

}  // namespace
}  // namespace redline::train
