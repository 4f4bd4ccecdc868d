// The task's contract: padding does not leak, splitting a batch changes nothing, gradients are those of the loss, bad
// input is named.
#include "models/sequence_vae/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/sequence_vae/free_bits.h"

namespace redline::models::sequence_vae {
namespace {

using ::testing::HasSubstr;

Options tiny_task(const std::string& architecture) {
  Options o;
  o.architecture = architecture;
  o.vocab_size = 11;
  o.latent_dim = 4;
  o.d_model = 16;
  o.n_heads = 2;
  o.d_ff = 32;
  o.n_encoder_layers = o.n_decoder_layers = 2;
  o.max_sequence_length = 40;
  o.lstm = {8, 10, 12, 0.3, 0.3};
  return o;
}

// Sequences of the given lengths (start and end included); contents depend on the sample id alone.
task::Batch batch_of(const Options& o, const std::vector<int64_t>& lengths, const std::vector<int64_t>& ids,
                     int64_t padded = 0) {
  task::Batch batch;
  batch.sample_ids = ids;
  const int64_t longest = std::max(padded, *std::max_element(lengths.begin(), lengths.end()));
  const auto count = static_cast<int64_t>(lengths.size());
  batch.tensors["lengths"] = torch::tensor(lengths, torch::kInt64);
  torch::Tensor tokens =
      torch::full({count, longest}, 9, torch::kInt64);  // padding holds a real id: it must not matter
  torch::Tensor values = torch::full({count, longest, o.input_dim}, 5.0);
  for (int64_t b = 0; b < count; ++b)
    for (int64_t t = 0; t < lengths[static_cast<size_t>(b)]; ++t) {
      const int64_t id = ids[static_cast<size_t>(b)];
      tokens[b][t] = t == 0                                     ? 1
                     : t + 1 == lengths[static_cast<size_t>(b)] ? 2
                                                                : 3 + (id * 7 + t * t) % (o.vocab_size - 3);
      for (int64_t d = 0; d < o.input_dim; ++d) values[b][t][d] = std::sin(static_cast<double>(id + t * 3 + d));
    }
  if (o.reads_tokens()) batch.tensors["tokens"] = tokens;
  if (o.input == "values") batch.tensors["values"] = values;
  if (o.input == "embeddings") batch.tensors["embeddings"] = values;
  return batch;
}

struct StepResult {
  double loss;
  std::map<std::string, torch::Tensor> gradients;
};
StepResult run(SequenceVaeTask& task, const task::Batch& batch, bool training = true) {
  task.module().zero_grad();
  task::Context ctx(3, 7, training, batch.sample_ids);
  const task::Loss loss = task.loss(batch, ctx);
  loss.value.backward();
  StepResult out{loss.value.item<double>(), {}};
  for (const auto& item : task.module().named_parameters()) out.gradients[item.key()] = item.value().grad().clone();
  return out;
}

std::vector<Options> variants() {
  Options mean = tiny_task("transformer"), post = tiny_task("transformer"), values = tiny_task("transformer"),
          embeddings = tiny_task("transformer");
  mean.pooling = "mean";
  mean.positions = "learned";
  mean.activation = "relu";
  post.norm_first = false;
  values.input = "values";
  values.input_dim = 3;
  values.values_sigma = 0.5;
  embeddings.input = "embeddings";
  embeddings.input_dim = 5;
  return {tiny_task("transformer"), tiny_task("lstm"), mean, post, values, embeddings};
}

TEST(SequenceVaeTask, PaddingDoesNotLeak) {
  for (const Options& o : variants()) {
    SequenceVaeTask task(o, 1);
    const std::vector<int64_t> lengths = {5, 17, 9}, ids = {100, 200, 300};
    double alone = 0.0;
    for (size_t b = 0; b < 3; ++b) alone += run(task, batch_of(o, {lengths[b]}, {ids[b]})).loss / 3.0;
    const double together = run(task, batch_of(o, lengths, ids)).loss;
    const double padded = run(task, batch_of(o, lengths, ids, 30)).loss;
    EXPECT_NEAR(together, alone, 1e-5 * std::abs(alone)) << o.architecture << " " << o.input << " " << o.pooling;
    EXPECT_NEAR(padded, alone, 1e-5 * std::abs(alone)) << o.architecture << " " << o.input << " " << o.pooling;
    // Negative control: a real position does matter.
    task::Batch changed = batch_of(o, lengths, ids);
    changed.tensors["lengths"][1] -= 1;
    EXPECT_GT(std::abs(run(task, changed).loss - alone), 1e-4 * std::abs(alone));
  }
}

TEST(SequenceVaeTask, SplittingABatchGivesTheSameLossAndGradientsWithDropout) {
  for (const Options& o : variants()) {
    SequenceVaeTask task(o, 1);
    const std::vector<int64_t> lengths = {5, 17, 9, 20}, ids = {100, 200, 300, 400};
    const StepResult whole = run(task, batch_of(o, lengths, ids));
    std::map<std::string, torch::Tensor> sum;
    double loss = 0.0;
    for (size_t half = 0; half < 2; ++half) {
      const StepResult part =
          run(task, batch_of(o, {lengths[2 * half], lengths[2 * half + 1]}, {ids[2 * half], ids[2 * half + 1]}));
      loss += part.loss / 2.0;
      for (const auto& [name, gradient] : part.gradients)
        sum[name] = sum.count(name) ? sum[name] + gradient / 2.0 : gradient / 2.0;
    }
    EXPECT_NEAR(loss, whole.loss, 1e-5 * std::abs(whole.loss));
    double scale = 0.0;
    for (const auto& [name, gradient] : whole.gradients) scale = std::max(scale, gradient.abs().max().item<double>());
    for (const auto& [name, gradient] : whole.gradients)
      EXPECT_LE((sum[name] - gradient).abs().max().item<double>(), 1e-5 * scale) << name << " " << o.architecture;
  }
}

// Gradients of every parameter against central differences in double precision, with dropout on and a schedule under
// way.
TEST(SequenceVaeTask, GradientsMatchFiniteDifferencesInDoublePrecision) {
  for (Options o : variants()) {
    o.d_model = 8;
    o.d_ff = 8;
    o.n_encoder_layers = o.n_decoder_layers = 1;
    o.vocab_size = 7;
    o.kl_schedule = {"linear", 1.0, 0.3, 10, 4, 0.5, 100};
    SequenceVaeTask task(o, 2);
    task.module().to(torch::kFloat64);
    task::Batch batch = batch_of(o, {4, 7}, {1, 2});
    for (const char* name : {"values", "embeddings"})
      if (batch.has(name)) batch.tensors[name] = batch.tensors[name].to(torch::kFloat64);
    const StepResult exact = run(task, batch);
    double scale = 0.0;
    for (const auto& [name, gradient] : exact.gradients) scale = std::max(scale, gradient.abs().max().item<double>());
    const torch::NoGradGuard no_grad;
    for (const auto& item : task.module().named_parameters()) {
      torch::Tensor flat = item.value().view({-1});
      for (int64_t i = 0; i < flat.numel(); i += std::max<int64_t>(1, flat.numel() / 5)) {
        const double h = 1e-5, before = flat[i].item<double>();
        const auto at = [&](double value) {
          flat[i] = value;
          task::Context ctx(3, 7, true, batch.sample_ids);
          return task.loss(batch, ctx).value.item<double>();
        };
        const double slope = (at(before + h) - at(before - h)) / (2.0 * h);
        flat[i] = before;
        EXPECT_NEAR(exact.gradients.at(item.key()).view({-1})[i].item<double>(), slope, 1e-6 * std::max(1.0, scale))
            << item.key() << "[" << i << "] " << o.architecture << " " << o.input;
      }
    }
  }
}

TEST(SequenceVaeTask, ComputedAgainInBackwardGivesTheSameNumbers) {
  for (Options o : variants()) {
    if (o.architecture != "transformer") continue;
    o.n_encoder_layers = o.n_decoder_layers = 3;
    const task::Batch batch = batch_of(o, {4, 7, 2}, {1, 2, 3});
    SequenceVaeTask kept(o, 2);
    o.gradient_checkpointing = true;
    SequenceVaeTask again(o, 2);
    const StepResult a = run(kept, batch), b = run(again, batch);
    EXPECT_EQ(a.loss, b.loss);
    ASSERT_EQ(a.gradients.size(), b.gradients.size());
    for (const auto& [name, gradient] : a.gradients)
      EXPECT_TRUE(torch::equal(gradient, b.gradients.at(name))) << name << " " << o.input << " " << o.norm_first;
  }
}

TEST(SequenceVaeTask, PoolingTheLastStepEqualsComputingAllOfThem) {
  // The same weights with a second, never-read position stream: forward_last must equal the full layer's last row.
  const Options o = tiny_task("transformer");
  SequenceVaeTask task(o, 1);
  const task::Batch batch = batch_of(o, {6, 13}, {5, 6});
  task::Context a(3, 7, true, batch.sample_ids), b(3, 7, true, batch.sample_ids);
  a.want_outputs(true);
  b.want_outputs(true);
  task.loss(batch, a);
  task::Batch swapped = batch_of(o, {13, 6}, {6, 5});
  task::Context c(3, 7, true, swapped.sample_ids);
  c.want_outputs(true);
  task.loss(swapped, c);
  EXPECT_TRUE(torch::allclose(a.outputs()["mu"][0], c.outputs()["mu"][1], 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(a.outputs()["mu"][1], c.outputs()["mu"][0], 1e-5, 1e-6));
}

TEST(SequenceVaeTask, LossIsReconstructionPlusWeightedKlAndReportsTheUnmaskedKl) {
  Options o = tiny_task("transformer");
  o.kl_schedule = {"linear", 1.0, 0.0, 4, 4, 0.5, 100};
  o.free_bits = {"per_example", 1e9};  // everything is free
  SequenceVaeTask task(o, 1);
  const task::Batch batch = batch_of(o, {6, 13}, {5, 6});
  task::Context ctx(3, 7, false, batch.sample_ids);
  const task::Loss loss = task.loss(batch, ctx);
  EXPECT_FLOAT_EQ(loss.value.item<float>(), loss.metrics.at("reconstruction").item<float>());
  EXPECT_GT(loss.metrics.at("kl").item<double>(), 0.0);
  EXPECT_FLOAT_EQ(loss.metrics.at("kl_weight").item<float>(), 0.25f);
  EXPECT_EQ(loss.weight.item<double>(), 2.0);
  task.committed(2);
  EXPECT_NEAR(task.kl_weight_now(), 0.75, 1e-12);
}

TEST(SequenceVaeTask, NamesTheSequenceOfABadTokenOrLength) {
  const Options o = tiny_task("transformer");
  SequenceVaeTask task(o, 1);
  const auto refusal = [&](task::Batch batch) {
    task::Context ctx(1, 1, true, batch.sample_ids);
    try {
      task.loss(batch, ctx);
    } catch (const DataError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  task::Batch batch = batch_of(o, {6, 13}, {5, 6});
  batch.tensors["tokens"] = batch.tensors["tokens"].clone();
  batch.tensors["tokens"][1][4] = 11;
  EXPECT_THAT(refusal(batch), HasSubstr("Token 11 at position 4 of sequence 1 (sample 6) is outside 0 to 10"));
  batch = batch_of(o, {6, 13}, {5, 6});
  batch.tensors["lengths"][0] = 1;
  EXPECT_THAT(refusal(batch), HasSubstr("Sequence 0 of the batch (sample 5) has length 1"));
  batch = batch_of(o, {6, 13}, {5, 6});
  batch.tensors["lengths"][0] = 14;
  EXPECT_THAT(refusal(batch), HasSubstr("expected 2 to 13"));
}

TEST(SequenceVaeTask, RefusesOptionsThatContradictEachOther) {
  const auto refusal = [](Options o) {
    try {
      SequenceVaeTask task(o, 1);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  Options o = tiny_task("transformer");
  o.n_heads = 3;
  EXPECT_THAT(refusal(o), HasSubstr("multiple of model.n_heads"));
  o = tiny_task("lstm");
  o.input = "values";
  EXPECT_THAT(refusal(o), HasSubstr("lstm reads tokens"));
  o = tiny_task("transformer");
  o.end_id = 11;
  EXPECT_THAT(refusal(o), HasSubstr("below model.vocab_size"));
  o.end_id = 1;
  EXPECT_THAT(refusal(o), HasSubstr("must differ"));
}

TEST(SequenceVaeTask, ParameterCountsAreTheReferences) {
  Options o = tiny_task("lstm");
  o.vocab_size = 1004;
  o.latent_dim = 2;
  o.lstm = {50, 50, 50, 0.5, 0.5};
  const auto count = [](SequenceVaeTask& task) {
    int64_t total = 0;
    for (const torch::Tensor& p : task.module().parameters()) total += p.numel();
    return total;
  };
  SequenceVaeTask small(o, 1);
  EXPECT_EQ(count(small), 192100);
  o.vocab_size = 1000;
  o.latent_dim = 16;
  o.lstm = {64, 128, 128, 0.5, 0.5};
  SequenceVaeTask middle(o, 1);
  EXPECT_EQ(count(middle), 468992);
}

TEST(SequenceVaeTask, WorstCaseBatchFitsTheSchemaAndRuns) {
  for (const Options& o : variants()) {
    SequenceVaeTask task(o, 1);
    const task::Batch batch = task.worst_case_batch(2);
    task::check_batch(task.schema(), batch);
    EXPECT_TRUE(std::isfinite(run(task, batch).loss));
    EXPECT_GT(task.flops_per_sample(10.0), 0.0);
    EXPECT_GT(task.flops_per_sample(20.0), task.flops_per_sample(10.0));
    EXPECT_EQ(task.flops_per_sample(1e9), task.flops_per_sample(static_cast<double>(o.max_sequence_length)));
  }
}

TEST(SequenceVaeTask, ValidationStatisticsAreOfTheWholeSet) {
  const Options o = tiny_task("transformer");
  SequenceVaeTask task(o, 1);
  EXPECT_TRUE(task.finish_validation(task.take_validation_sums()).empty());
  std::vector<double> added;
  for (int64_t i = 0; i < 3; ++i) {
    const task::Batch batch = batch_of(o, {6, 13}, {10 * i, 10 * i + 1});
    run(task, batch, false);
    // As if each batch were on a rank of its own.
    SequenceVaeTask rank(o, 1);
    run(rank, batch, false);
    const std::vector<double> sums = rank.take_validation_sums();
    added.resize(sums.size());
    for (size_t k = 0; k < sums.size(); ++k) added[k] += sums[k];
  }
  const auto metrics = task.finish_validation(task.take_validation_sums());
  EXPECT_GE(metrics.at("active_units"), 0.0);
  EXPECT_GT(metrics.at("perplexity"), 1.0);
  EXPECT_LT(metrics.at("perplexity"), 30.0);  // an untrained model over 11 tokens
  EXPECT_LE(metrics.at("mutual_information_paired"), std::log(2.0) + 1e-9);
  for (const auto& [name, value] : task.finish_validation(added))
    EXPECT_NEAR(value, metrics.at(name), 1e-9 * std::abs(value) + 1e-12) << name;
  EXPECT_TRUE(task.finish_validation(task.take_validation_sums()).empty());
}

TEST(SequenceVaeTask, AggressiveTrainingUpdatesHalvesInTurnAndSurvivesARestart) {
  Options o = tiny_task("transformer");
  o.aggressive = {true, 2, 2};
  SequenceVaeTask task(o, 1), resumed(o, 1);
  const auto groups = task.parameter_groups();
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].parameters.size() + groups[1].parameters.size(), task.module().parameters().size());
  std::vector<std::string> seen;
  for (int64_t step = 1; step <= 6; ++step) {
    seen.push_back(task.groups_to_update().at(0));
    run(task, batch_of(o, {6, 13}, {step, step + 50}));
    task.committed(step);
    resumed.load_state_json(task.state_json());
    EXPECT_EQ(resumed.groups_to_update(), task.groups_to_update());
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"encoder", "encoder", "decoder", "encoder", "encoder", "decoder"}));
  EXPECT_TRUE(SequenceVaeTask(tiny_task("transformer"), 1).groups_to_update().empty());
}

TEST(SequenceVaeTask, InitialWeightsDependOnTheSeedAlone) {
  const Options o = tiny_task("transformer");
  SequenceVaeTask a(o, 9), b(o, 9), c(o, 10);
  const auto pa = a.module().parameters(), pb = b.module().parameters(), pc = c.module().parameters();
  bool differs = false;
  for (size_t i = 0; i < pa.size(); ++i) {
    EXPECT_TRUE(torch::equal(pa[i], pb[i]));
    differs = differs || !torch::equal(pa[i], pc[i]);
  }
  EXPECT_TRUE(differs);
}

}  // namespace
}  // namespace redline::models::sequence_vae
