// What a compiled step computes of the model: sub-sampling, encoder and decoder with their backward. Features, masks
// and tokens are made before it: they need the host, and no gradient.
#include "models/speech_ssl/model.h"

namespace redline::models::speech {

task::Tensors ModelImpl::outside(const task::Batch& batch, task::Context& ctx) {
  const torch::NoGradGuard no_grad;
  const bool fused = options_.fused_kernels;
  const auto [clean, noisy] = features(batch, ctx);
  const auto mask_of = [&](const torch::Tensor& x, const torch::Tensor& lengths) {
    return batch.has("mask") ? given_mask(batch, x.size(2), x.size(1))
                             : mask_processor_->choose(lengths, x.size(1), ctx).unsqueeze(2);
  };
  task::Tensors in;
  torch::Tensor lengths, mask;
  int64_t time = 0;
  if (options_.post_conv()) {
    in["tokens"] = quantizer_->forward(encoder_->subsample(clean.x_BTF, clean.lengths_B, fused).x_BTD, fused);
    const Subsampled input = encoder_->subsample(noisy.x_BTF, noisy.lengths_B, fused);
    mask = mask_of(input.x_BTD, input.lengths_B);
    in["x"] = input.x_BTD;
    lengths = input.lengths_B;
    time = input.x_BTD.size(1);
  } else {
    in["tokens"] = quantizer_->forward(clean.x_BTF, fused);
    mask = mask_of(noisy.x_BTF, noisy.lengths_B);
    in["x"] = noisy.x_BTF;
    in["lengths"] = noisy.lengths_B.to(noisy.x_BTF.device());
    lengths = encoder_->pre_encode()->shortened(noisy.lengths_B);
    time = encoder_->pre_encode()->shortened(noisy.x_BTF.size(1));
  }
  const torch::Tensor& x = in["x"];
  in["mask"] = mask.to(x.device());
  in["selected"] = selected_positions(mask, options_.loss_combine(), options_.loss.mask_threshold).to(x.device());
  if (in["selected"].size(1) != time)
    throw DataError("the mask selects among " + std::to_string(in["selected"].size(1)) +
                    " positions, but the encoder makes " + std::to_string(time) +
                    ": check loss.combine_time_steps and subsampling_factor.");
  // NeMo pads missing targets with token 0 and cuts surplus ones.
  in["tokens"] = torch::constant_pad_nd(in["tokens"], {0, 0, 0, time - in["tokens"].size(1)}).to(x.device());
  const EncoderImpl::Outside outside = encoder_->outside_layers(lengths, time, x, ctx);
  in["positions"] = outside.positions_PD;
  in["valid"] = outside.valid_BT;
  in["hidden"] = outside.hidden_BTT;
  in["kept_layers"] = outside.kept_L;
  in["positions_in_all"] = lengths.sum().clamp_min(1).to(torch::kFloat32).to(x.device());
  if (ctx.wants_outputs()) record_outside(clean, noisy, lengths, in, ctx);
  return in;
}

task::Loss ModelImpl::traced_loss(const task::Tensors& in, task::Context& ctx) {
  torch::Tensor x = mask_processor_->apply(in.at("x"), in.at("mask"));
  if (!options_.post_conv()) x = encoder_->pre_encode()->plain(x, in.at("lengths")).x_BTD;
  const EncoderImpl::Outside outside{in.at("positions"), in.at("valid"), in.at("hidden"), in.at("kept_layers")};
  x = encoder_->encode_traced(x, outside, ctx);
  const torch::Tensor selected = in.at("selected").reshape({-1});
  task::Loss out;
  out.value =
      decoder_->loss_where(x.reshape({-1, x.size(2)}), in.at("tokens").reshape({-1, options_.num_books}), selected);
  out.weight = selected.sum().to(torch::kFloat32);
  out.metrics["masked_share"] = out.weight / in.at("positions_in_all");
  if (ctx.wants_outputs()) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor log_probs = decoder_->log_probabilities(x);
    ctx.output("encoded", x.to(torch::kFloat32).transpose(1, 2).contiguous());
    ctx.output("log_probs", options_.squeeze_single && options_.num_books == 1 ? log_probs.squeeze(3) : log_probs);
  }
  return out;
}

void ModelImpl::record_outside(const Features& clean, const Features& noisy, const torch::Tensor& lengths,
                               const task::Tensors& in, task::Context& ctx) const {
  const bool squeeze = options_.squeeze_single && options_.num_books == 1;
  ctx.output("clean_features", clean.x_BTF.transpose(1, 2).contiguous());
  ctx.output("noisy_features", noisy.x_BTF.transpose(1, 2).contiguous());
  ctx.output("feature_lengths", noisy.lengths_B);
  ctx.output("tokens", squeeze ? in.at("tokens").squeeze(2) : in.at("tokens"));
  ctx.output("encoded_lengths", lengths);
}

}  // namespace redline::models::speech
