// Shapes: B samples, T points (padded), F features.
#include "train/testing/example_task.h"

#include "core/philox.h"
#include "data/kinds.h"
#include "data/memory_source.h"

namespace redline::example {

namespace {

// Weights come from the seed alone: the same on every machine, whatever was drawn before.
void draw_weights(torch::nn::Linear& layer, uint64_t seed, uint64_t which) {
  const torch::NoGradGuard no_grad;
  KeyedStream stream(seed, 0, which, 0);
  const double bound = 1.0 / std::sqrt(static_cast<double>(layer->weight.size(1)));
  for (torch::Tensor tensor : {layer->weight, layer->bias}) {
    float* values = tensor.mutable_data_ptr<float>();
    for (int64_t i = 0; i < tensor.numel(); ++i) values[i] = static_cast<float>(stream.uniform(-bound, bound));
  }
}

data::Sample make_sample(const CurveOptions& options, uint64_t seed, int64_t id) {
  KeyedStream stream(seed, 1, static_cast<uint64_t>(id), 0);
  const int64_t points = stream.uniform_int(1, options.longest);
  data::Sample sample;
  sample.id = id;
  data::Array x = data::Array::empty(data::Dtype::F32, {points, options.features});
  data::Array y = data::Array::empty(data::Dtype::F32, {points});
  for (int64_t t = 0; t < points; ++t) {
    double sum = 0;
    for (int64_t f = 0; f < options.features; ++f) {
      const double value = stream.uniform(-1, 1);
      x.as<float>()[static_cast<size_t>(t * options.features + f)] = static_cast<float>(value);
      sum += f % 2 == 0 ? value : -value;
    }
    y.as<float>()[static_cast<size_t>(t)] = static_cast<float>(std::sin(2 * sum));
  }
  sample.set("x", std::move(x));
  sample.set("y", std::move(y));
  return sample;
}

}  // namespace

config::Table<CurveOptions> CurveOptions::fields() {
  using config::Effect;
  config::Table<CurveOptions> table;
  table.add("features", &CurveOptions::features, "Inputs of a point.").at_least(1).effect(Effect::Model);
  table.add("hidden", &CurveOptions::hidden, "Width of the hidden layer.").at_least(1).effect(Effect::Model);
  table.add("dropout", &CurveOptions::dropout, "Share of hidden units dropped in training.")
      .range(0, 1)
      .effect(Effect::Model);
  table.add("samples", &CurveOptions::samples, "Samples made for training.").at_least(1);
  table.add("longest", &CurveOptions::longest, "Most points of a sample.").at_least(1);
  return table;
}

CurveTask::CurveTask(const CurveOptions& options, uint64_t seed)
    : options_(options),
      seed_(seed),
      module_(std::make_shared<torch::nn::Module>()),
      first_(module_->register_module("first", torch::nn::Linear(options.features, options.hidden))),
      second_(module_->register_module("second", torch::nn::Linear(options.hidden, 1))) {
  draw_weights(first_, seed, 1);
  draw_weights(second_, seed, 2);
}

task::BatchSchema CurveTask::schema() const {
  return {{{"x", torch::kFloat32, {-2, -1, options_.features}, false, "points"},
           {"y", torch::kFloat32, {-2, -1}, false, "their values"},
           {"length", torch::kInt64, {-2}, false, "points of each sample"}}};
}

torch::Tensor CurveTask::predict_points(const torch::Tensor& x_BTF, task::Context& ctx) {
  const torch::Tensor hidden_BTH = ctx.dropout(torch::relu(first_->forward(x_BTF)), options_.dropout, "hidden");
  return second_->forward(hidden_BTH).squeeze(-1);
}

task::Loss CurveTask::loss(const task::Batch& batch, task::Context& ctx) {
  return compute(before(batch, ctx), ctx).loss;
}

task::PartResult CurveTask::compute(const task::Tensors& in, task::Context& ctx) {
  const torch::Tensor prediction_BT = predict_points(in.at("x"), ctx);
  ctx.output("prediction", prediction_BT);
  // Padding takes no part: the loss averages over real points and says how many they are.
  const torch::Tensor steps_T = torch::arange(prediction_BT.size(1), in.at("length").options());
  const torch::Tensor real_BT = steps_T.unsqueeze(0) < in.at("length").unsqueeze(1);
  const torch::Tensor weight = real_BT.sum().to(torch::kFloat32);
  const torch::Tensor error_BT = (prediction_BT.to(torch::kFloat32) - in.at("y")) * real_BT;
  task::Loss loss;
  loss.value = error_BT.square().sum() / weight;
  loss.weight = weight;
  loss.metrics["absolute_error"] = error_BT.detach().abs().sum() / weight;
  return {loss, {}};
}

std::vector<task::MetricInfo> CurveTask::metrics() const {
  return {{"absolute_error", "", "Mean distance from the curve."}};
}

double CurveTask::flops_per_sample(double length) const {
  // Two products forward, twice that backward; 2 operations per multiplication and addition.
  return 6.0 * length * static_cast<double>(options_.features * options_.hidden + options_.hidden);
}

task::Batch CurveTask::worst_case_batch(int64_t batch_size) const {
  task::Batch batch;
  batch.tensors["x"] = torch::ones({batch_size, options_.longest, options_.features});
  batch.tensors["y"] = torch::ones({batch_size, options_.longest});
  batch.tensors["length"] = torch::full({batch_size}, options_.longest, torch::kInt64);
  for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
  return batch;
}

data::CollateSpec CurveTask::collate() const {
  data::CollateSpec spec;
  spec.fields = {{"x", 0.0, 1, "length", false}, {"y", 0.0, 1, "", false}};
  spec.counted_field = "x";
  return spec;
}

std::shared_ptr<const data::Kind> CurveTask::kind() const {
  return data::memory_kind([options = options_](bool training) {
    std::vector<data::Sample> samples;
    std::vector<double> lengths;
    const int64_t count = training ? options.samples : std::max<int64_t>(1, options.samples / 4);
    for (int64_t id = 0; id < count; ++id) {
      samples.push_back(make_sample(options, training ? 1 : 2, id));
      lengths.push_back(static_cast<double>(samples.back().find("y")->numel()));
    }
    return std::make_shared<data::MemorySource>(std::move(samples), std::move(lengths));
  });
}

void register_curve(task::Registry& registry) {
  registry.add({"curve",
                "Regression on points of a curve; the example of docs/new_task.md.",
                [] { return std::make_unique<CurveConfig>(); },
                {},
                {}});
}

}  // namespace redline::example
