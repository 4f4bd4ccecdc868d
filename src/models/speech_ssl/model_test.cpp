// Parameter counts of the published sizes, names, masking, and every fused path against its plain twin (values and
// gradients).
#include "models/speech_ssl/model.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "models/speech_ssl/feature_transform.h"

namespace redline::models::speech {
namespace {

ModelOptions small_options() {
  ModelOptions o;
  o.num_classes = o.quantizer.num_classes = 32;
  o.preprocessor.features = 80;
  o.preprocessor.window_size = 0.025;
  o.preprocessor.dither = 0.0;
  o.masking.block_size = 16;
  o.masking.mask_prob = 0.03;
  o.masking.allow_overlap = true;
  o.quantizer.combine_time_steps = o.loss.combine_time_steps = 8;
  o.encoder.n_layers = 2;
  o.encoder.d_model = 24;
  o.encoder.subsampling_conv_channels = 12;
  o.encoder.conv_kernel_size = 9;
  o.encoder.dropout_att = 0.1;
  o.decoder.use_bias = true;
  o.complete();
  return o;
}

task::Batch make_batch(const std::vector<int64_t>& lengths) {
  task::Batch batch;
  for (size_t i = 0; i < lengths.size(); ++i) batch.sample_ids.push_back(static_cast<int64_t>(i) * 7 + 3);
  const int64_t rows = static_cast<int64_t>(lengths.size()),
                longest = *std::max_element(lengths.begin(), lengths.end());
  task::Context normal(5, 0, true, batch.sample_ids);
  torch::Tensor audio = 0.1 * normal.normal({rows, longest}, "audio");
  for (int64_t b = 0; b < rows; ++b) audio[b].slice(0, lengths[static_cast<size_t>(b)]).zero_();
  batch.tensors["audio"] = audio;
  batch.tensors["noisy_audio"] = audio * 0.9;
  batch.tensors["audio_lengths"] = batch.tensors["noisy_audio_lengths"] = torch::tensor(lengths);
  return batch;
}

struct StepResult {
  torch::Tensor encoded;
  double loss;
  std::map<std::string, torch::Tensor> gradients;
  std::vector<task::BatchNormUpdate> updates;
};
StepResult run_step(ModelOptions options, const task::Batch& batch, bool fused) {
  options.fused_kernels = fused;
  const Model model(options, 11);
  task::Context ctx(1, 4, true, batch.sample_ids);
  const ModelImpl::Pass pass = std::const_pointer_cast<ModelImpl>(model.ptr())->forward(batch, ctx);
  const torch::Tensor x = pass.encoded.x_BTD.reshape({-1, pass.encoded.x_BTD.size(2)});
  const torch::Tensor chosen = pass.selected_BT.reshape({-1}).nonzero().squeeze(1);
  const torch::Tensor loss = model->decoder()->loss(
      x.index_select(0, chosen), pass.tokens_BTH.reshape({-1, options.num_books}).index_select(0, chosen));
  loss.backward();
  StepResult out{pass.encoded.x_BTD.detach(), loss.item<double>(), {}, ctx.batch_norm_updates()};
  for (const auto& item : model->named_parameters())
    if (item.value().grad().defined()) out.gradients[item.key()] = item.value().grad().clone();
  return out;
}

double gap(const torch::Tensor& a, const torch::Tensor& b) { return (a - b).abs().max().item<double>(); }

void expect_same_step(const ModelOptions& options, const task::Batch& batch) {
  const StepResult plain = run_step(options, batch, false), fused = run_step(options, batch, true);
  EXPECT_LE(gap(fused.encoded, plain.encoded), 2e-4 * plain.encoded.abs().max().item<double>());
  EXPECT_NEAR(fused.loss, plain.loss, 1e-4 * plain.loss);
  ASSERT_EQ(fused.gradients.size(), plain.gradients.size());
  double scale = 0.0;
  for (const auto& [name, g] : plain.gradients) scale = std::max(scale, g.abs().max().item<double>());
  for (const auto& [name, g] : plain.gradients)
    EXPECT_LE(gap(fused.gradients.at(name), g), 5e-3 * std::max(g.abs().max().item<double>(), 1e-3 * scale)) << name;
  ASSERT_EQ(fused.updates.size(), plain.updates.size());
  for (size_t i = 0; i < plain.updates.size(); ++i) {
    EXPECT_LE(gap(fused.updates[i].batch_mean, plain.updates[i].batch_mean), 1e-4);
    EXPECT_LE(gap(fused.updates[i].batch_var_unbiased, plain.updates[i].batch_var_unbiased), 1e-4);
  }
}

TEST(SpeechModel, FusedEqualsPlainWithDropoutAndPadding) {
  expect_same_step(small_options(), make_batch({32000, 21000, 17111}));
}

TEST(SpeechModel, FusedEqualsPlainForAClipOfOneFrameAndABatchOfOne) {
  expect_same_step(small_options(), make_batch({24000, 170}));
  expect_same_step(small_options(), make_batch({16000}));
}

TEST(SpeechModel, FusedEqualsPlainWithLimitedContextsAndWithoutBiases) {
  ModelOptions o = small_options();
  o.encoder.use_bias = o.encoder.xscaling = false;
  o.encoder.att_context_size = config::Node::list({config::Node::scalar("6"), config::Node::scalar("2")});
  o.encoder.conv_context_size = config::Node::scalar("causal");
  o.complete();
  expect_same_step(o, make_batch({32000, 20000}));
}

TEST(SpeechModel, ParameterCountsOfThePublishedSizes) {
  struct Size {
    int64_t d_model, heads, layers, kernel;
    bool bias;
    int64_t encoder, total;
  };
  // Recomputed from the layer shapes for 80 mels, 256 channels and 8192 classes. The two largest are counted from the
  // shapes of one layer, so that the test does not hold gigabytes.
  for (const Size& s :
       {Size{176, 4, 16, 9, true, 12'600'240, 14'050'224}, Size{256, 4, 16, 9, true, 26'128'640, 28'233'984},
        Size{512, 8, 17, 9, true, 108'762'112, 112'964'608}, Size{1024, 8, 24, 9, false, 607'306'752, 615'703'552},
        Size{1024, 8, 42, 5, false, 1'060'543'488, 1'068'940'288}}) {
    ModelOptions o = small_options();
    o.num_classes = o.quantizer.num_classes = o.decoder.num_classes = 8192;
    o.encoder.d_model = o.decoder.feat_in = s.d_model;
    o.encoder.n_heads = s.heads;
    o.encoder.n_layers = 1;
    o.encoder.conv_kernel_size = s.kernel;
    o.encoder.use_bias = s.bias;
    o.encoder.subsampling_conv_channels = 256;
    o.complete();
    const Model model(o, 1);
    int64_t layer = 0, encoder = 0, decoder = 0;
    for (const auto& item : model->named_parameters()) {
      if (item.key().starts_with("encoder.layers.0.")) layer += item.value().numel();
      if (item.key().starts_with("encoder.")) encoder += item.value().numel();
      if (item.key().starts_with("decoder.")) decoder += item.value().numel();
    }
    encoder += layer * (s.layers - 1);
    EXPECT_EQ(encoder, s.encoder) << s.d_model;
    EXPECT_EQ(encoder + decoder, s.total) << s.d_model;
  }
}

TEST(SpeechModel, SameSeedSameWeightsAnotherSeedOthers) {
  const ModelOptions o = small_options();
  const Model a(o, 3), b(o, 3), c(o, 4);
  const auto pa = a->named_parameters(), pb = b->named_parameters(), pc = c->named_parameters();
  for (const auto& item : pa) EXPECT_TRUE(torch::equal(item.value(), pb[item.key()])) << item.key();
  EXPECT_FALSE(torch::equal(pa["encoder.pre_encode.conv.0.weight"], pc["encoder.pre_encode.conv.0.weight"]));
}

TEST(SpeechModel, EmptySelectionGivesZeroAndNoNaN) {
  const Decoder decoder(small_options().decoder);
  const torch::Tensor loss =
      decoder->loss(torch::zeros({0, 24}, torch::requires_grad()), torch::zeros({0, 1}, torch::kInt64));
  EXPECT_EQ(loss.item<double>(), 0.0);
}

TEST(Preprocessor, FastPathEqualsTorchStft) {
  const ModelOptions o = small_options();
  Preprocessor preprocessor(o.preprocessor);
  const task::Batch batch = make_batch({24000, 9999, 160, 0});
  task::Context ctx(1, 0, false, batch.sample_ids);
  const std::vector<Signal> signals{{batch.at("audio"), batch.at("audio_lengths"), "clean"}};
  const Features fast = preprocessor->forward(signals, ctx, true)[0],
                 plain = preprocessor->forward(signals, ctx, false)[0];
  ASSERT_EQ(fast.x_BTF.sizes(), plain.x_BTF.sizes());
  EXPECT_TRUE(torch::equal(fast.lengths_B, plain.lengths_B));
  EXPECT_LE(gap(fast.x_BTF, plain.x_BTF.nan_to_num(0.0)), 1e-3);
}

TEST(Preprocessor, WorkedLengths) {
  const Preprocessor p(small_options().preprocessor);
  for (const auto& [samples, frames, padded] : std::vector<std::array<int64_t, 3>>{{16000, 100, 112},
                                                                                   {48000, 300, 304},
                                                                                   {64000, 400, 416},
                                                                                   {240000, 1500, 1504},
                                                                                   {960000, 6000, 6016},
                                                                                   {0, 0, 16}}) {
    EXPECT_EQ(p->num_frames(samples), frames);
    EXPECT_EQ(p->padded_frames(samples), padded);
  }
}

TEST(Preprocessor, CachedFeaturesAreTheTasksOwn) {
  const ModelOptions o = small_options();
  Preprocessor preprocessor(o.preprocessor);
  const task::Batch batch = make_batch({20000});
  task::Context ctx(1, 0, true, batch.sample_ids);
  const Features features =
      preprocessor->forward({{batch.at("audio"), batch.at("audio_lengths"), "clean"}}, ctx, true)[0];
  data::Sample sample;
  sample.id = 0;
  data::Array audio = data::Array::empty(data::Dtype::F32, {20000});
  std::copy_n(batch.at("audio").const_data_ptr<float>(), 20000, audio.as<float>().data());
  sample.set("audio", audio);
  make_feature_transform(o.preprocessor)->apply(sample, {});
  const data::Array* cached = sample.find("clean_features");
  ASSERT_NE(cached, nullptr);
  ASSERT_EQ(cached->shape(), (data::Shape{125, 80}));
  for (int64_t i = 0; i < cached->numel(); ++i)
    ASSERT_EQ(cached->as<float>()[static_cast<size_t>(i)], features.x_BTF.const_data_ptr<float>()[i]);
}

TEST(Quantizer, FastSearchEqualsPlain) {
  std::vector<int64_t> ids{1};
  task::Context ctx(9, 0, true, ids);
  torch::Tensor codes = ctx.normal({1, 1000, 16}, "codes")[0].to(torch::kFloat64), x = ctx.normal({1, 300, 16}, "x")[0];
  codes = codes / codes.norm(2, -1, true);
  x = x / x.norm(2, -1, true);
  EXPECT_TRUE(torch::equal(nearest_code_fast(x, codes), nearest_code_plain(x, codes)));
}

// A silent stretch projects to zero: the l2 search then takes the code of the lowest rounded norm, the cosine search
// the first one, as the reference does.
TEST(Quantizer, PaddingTakesTheReferencesCode) {
  QuantizerOptions o;
  o.feat_in = 8;
  o.num_classes = 64;
  o.combine_time_steps = 2;
  for (const char* dist_fn : {"l2", "cosine"}) {
    o.dist_fn = dist_fn;
    Quantizer quantizer(o);
    quantizer->initialise(3, "quantizer");
    const torch::Tensor codes = quantizer->named_parameters()["codebooks"][0];
    const int64_t expected = o.dist_fn == "l2" ? (-codes.t()).norm(2, 0).argmin().item<int64_t>() : 0;
    for (bool fused : {true, false})
      EXPECT_EQ(quantizer->forward(torch::zeros({1, 2, 8}), fused).item<int64_t>(), expected) << dist_fn;
  }
}

TEST(Masking, BlocksStayInsideAndShortClipsHideEight) {
  MaskingOptions o;
  o.block_size = 40;
  o.mask_prob = 0.01;
  o.allow_overlap = true;
  KeyedStream stream(1, 2, 3, 4);
  EXPECT_EQ(choose_blocks(50, 40, o, stream), (std::vector<Block>{{0, 8}}));
  EXPECT_EQ(choose_blocks(5, 40, o, stream), (std::vector<Block>{{0, 5}}));
  EXPECT_TRUE(choose_blocks(0, 40, o, stream).empty());
  int64_t starts = 0;
  for (int round = 0; round < 2000; ++round)
    for (const Block& b : choose_blocks(540, 40, o, stream)) {
      ASSERT_GE(b.begin, 0);
      ASSERT_EQ(b.end - b.begin, 40);
      ASSERT_LE(b.end, 540);
      ++starts;
    }
  EXPECT_NEAR(static_cast<double>(starts) / 2000.0, 5.0, 0.25);  // 500 starts at 1 %
  o.allow_overlap = false;
  o.mask_prob = 0.4;
  for (int round = 0; round < 200; ++round) {
    std::vector<bool> hidden(540, false);
    for (const Block& b : choose_blocks(540, 40, o, stream))
      for (int64_t t = b.begin; t < b.end; ++t) {
        ASSERT_FALSE(hidden[static_cast<size_t>(t)]) << "blocks overlap";
        hidden[static_cast<size_t>(t)] = true;
      }
  }
}

TEST(Loss, SevenOfEightHiddenFramesCount) {
  torch::Tensor mask = torch::zeros({1, 16}, torch::kBool);
  mask.slice(1, 0, 7).fill_(true);
  mask.slice(1, 8, 14).fill_(true);
  const torch::Tensor selected = selected_positions(mask, 8, 0.8);
  EXPECT_TRUE(selected[0][0].item<bool>());
  EXPECT_FALSE(selected[0][1].item<bool>());
}

TEST(Options, TheBareDefaultsAgree) {
  ModelOptions o;
  o.complete();
  EXPECT_EQ(o.encoder.feat_in, o.preprocessor.features);
  EXPECT_EQ(o.loss.combine_time_steps, o.encoder.subsampling_factor);
  EXPECT_EQ(o.quantizer.combine_time_steps, o.encoder.subsampling_factor);
  ModelOptions post;
  post.mask_position = "post_conv";
  post.complete();
  EXPECT_EQ(post.quantizer.combine_time_steps, 1);
}

TEST(Options, WhatDoesNotFitIsRefusedByName) {
  const auto refused = [](auto change, const char* key) {
    ModelOptions o = small_options();
    change(o);
    try {
      o.complete();
      ADD_FAILURE() << key << " was accepted";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  };
  refused([](ModelOptions& o) { o.preprocessor.pad_to = 4; }, "preprocessor.pad_to");
  refused([](ModelOptions& o) { o.encoder.n_heads = 5; }, "encoder.n_heads");
  refused([](ModelOptions& o) { o.encoder.causal_downsampling = true; }, "encoder.causal_downsampling");
  refused([](ModelOptions& o) { o.decoder.num_decoders = 2; }, "num_decoders");
  refused([](ModelOptions& o) { o.preprocessor.dither = 1e-5, o.cache_features = true; }, "cache_features");
}

}  // namespace
}  // namespace redline::models::speech
