#include "models/speech_ssl/model.h"

#include "core/error.h"

namespace redline::models::speech {

ModelImpl::ModelImpl(const ModelOptions& options, uint64_t seed) : options_(options) {
  preprocessor_ = register_module("preprocessor", Preprocessor(options.preprocessor));
  mask_processor_ = BlockMasking(options.masking, options.masked_features(), options.mask_block());
  encoder_ = register_module("encoder",
                             Encoder(options.encoder, options.post_conv() ? mask_processor_ : BlockMasking(nullptr)));
  quantizer_ = register_module("quantizer", Quantizer(options.quantizer));
  register_module("mask_processor", mask_processor_);
  decoder_ = register_module("decoder", Decoder(options.decoder));
  // NeMo keeps a second handle on the wrapped sub-sampling, which shows as aliases in its state dict. The masked
  // features are detached there, so none of the shared parameters ever has a gradient.
  if (options.post_conv()) {
    register_module("pre_encoder", encoder_->wrapper());
    for (torch::Tensor& parameter : encoder_->wrapper()->parameters()) parameter.set_requires_grad(false);
  }
  encoder_->initialise(seed, "encoder");
  quantizer_->initialise(seed, "quantizer");
  mask_processor_->initialise(seed, "mask_processor");
  decoder_->initialise(seed, "decoder");
}

// Both signals in one preprocessor call. Cached clean features take the clean signal's place; without a noisy signal
// the clean one is the input as well.
std::pair<Features, Features> ModelImpl::features(const task::Batch& batch, task::Context& ctx) {
  const bool cached = batch.has("clean_features");
  const bool has_noisy = batch.has("noisy_audio");
  std::vector<Signal> signals;
  if (!cached) signals.push_back({batch.at("audio"), batch.at("audio_lengths"), "clean"});
  if (has_noisy) signals.push_back({batch.at("noisy_audio"), batch.at("noisy_audio_lengths"), "noisy"});
  std::vector<Features> out;
  // A probe compares with another implementation. Both FFTs round equally well but differently, which moves features
  // by 1e-5 and flips a ReLU here and there; with LibTorch's FFT a difference means something.
  if (!signals.empty()) out = preprocessor_->forward(signals, ctx, options_.fused_kernels && !ctx.wants_outputs());
  Features clean;
  if (cached) {
    clean = {batch.at("clean_features"), batch.at("clean_feature_lengths").to(torch::kCPU)};
    const int64_t time = has_noisy
                             ? out.back().x_BTF.size(1)
                             : (clean.x_BTF.size(1) / options_.preprocessor.pad_to + 1) * options_.preprocessor.pad_to;
    if (clean.x_BTF.size(1) < time)
      clean.x_BTF =
          torch::constant_pad_nd(clean.x_BTF, {0, 0, 0, time - clean.x_BTF.size(1)}, options_.preprocessor.pad_value);
  } else {
    clean = out.front();
  }
  return {clean, has_noisy ? out.back() : clean};
}

torch::Tensor ModelImpl::given_mask(const task::Batch& batch, int64_t features, int64_t time) const {
  const torch::Tensor& mask = batch.at("mask");
  if (mask.dim() != 3 || mask.size(1) != features || mask.size(2) != time)
    throw DataError("the batch's mask must have the shape [" + std::to_string(batch.size()) + ", " +
                    std::to_string(features) + ", " + std::to_string(time) + "] (as the features have), found " +
                    c10::str(mask.sizes()) + ".");
  return mask.transpose(1, 2) > 0.5;
}

ModelImpl::Pass ModelImpl::forward(const task::Batch& batch, task::Context& ctx) {
  const bool fused = options_.fused_kernels, with_grad = torch::GradMode::is_enabled();
  Pass pass;
  std::tie(pass.clean, pass.noisy) = features(batch, ctx);
  torch::Tensor mask;  // bool, [B, T, 1] or [B, T, F] of the masked features
  const auto mask_of = [&](const torch::Tensor& x, const torch::Tensor& lengths) {
    return batch.has("mask") ? given_mask(batch, x.size(2), x.size(1))
                             : mask_processor_->choose(lengths, x.size(1), ctx).unsqueeze(2);
  };
  if (options_.post_conv()) {
    const torch::NoGradGuard no_grad;
    pass.tokens_BTH =
        quantizer_->forward(encoder_->subsample(pass.clean.x_BTF, pass.clean.lengths_B, fused).x_BTD, fused);
    Subsampled input = encoder_->subsample(pass.noisy.x_BTF, pass.noisy.lengths_B, fused);
    mask = mask_of(input.x_BTD, input.lengths_B);
    input.x_BTD = mask_processor_->apply(input.x_BTD, mask);
    const torch::AutoGradMode restored(with_grad);
    pass.encoded = encoder_->encode(input, ctx, fused);
  } else {
    pass.tokens_BTH = quantizer_->forward(pass.clean.x_BTF, fused);
    mask = mask_of(pass.noisy.x_BTF, pass.noisy.lengths_B);
    const torch::Tensor hidden = mask_processor_->apply(pass.noisy.x_BTF, mask);
    pass.encoded = encoder_->encode(encoder_->subsample(hidden, pass.noisy.lengths_B, fused), ctx, fused);
  }
  pass.selected_BT = selected_positions(mask, options_.loss_combine(), options_.loss.mask_threshold);
  const int64_t positions = pass.encoded.x_BTD.size(1), tokens = pass.tokens_BTH.size(1);
  if (pass.selected_BT.size(1) != positions)
    throw DataError("the mask selects among " + std::to_string(pass.selected_BT.size(1)) +
                    " positions, but the encoder made " + std::to_string(positions) +
                    ": check loss.combine_time_steps and subsampling_factor.");
  // NeMo pads missing targets with token 0 and cuts surplus ones.
  if (tokens != positions) pass.tokens_BTH = torch::constant_pad_nd(pass.tokens_BTH, {0, 0, 0, positions - tokens});
  if (ctx.wants_outputs()) record(pass, ctx);
  return pass;
}

void ModelImpl::record(const Pass& pass, task::Context& ctx) const {
  const torch::NoGradGuard no_grad;
  const bool squeeze = options_.squeeze_single && options_.num_books == 1;
  const torch::Tensor log_probs = decoder_->log_probabilities(pass.encoded.x_BTD);
  ctx.output("clean_features", pass.clean.x_BTF.transpose(1, 2).contiguous());
  ctx.output("noisy_features", pass.noisy.x_BTF.transpose(1, 2).contiguous());
  ctx.output("feature_lengths", pass.noisy.lengths_B);
  ctx.output("tokens", squeeze ? pass.tokens_BTH.squeeze(2) : pass.tokens_BTH);
  ctx.output("encoded", pass.encoded.x_BTD.to(torch::kFloat32).transpose(1, 2).contiguous());
  ctx.output("encoded_lengths", pass.encoded.lengths_B);
  ctx.output("log_probs", squeeze ? log_probs.squeeze(3) : log_probs);
}

Encoded ModelImpl::embed(const task::Batch& batch, task::Context& ctx) {
  const Features input = features(batch, ctx).second;
  return encoder_->encode(encoder_->subsample(input.x_BTF, input.lengths_B, options_.fused_kernels), ctx,
                          options_.fused_kernels);
}

}  // namespace redline::models::speech
