#include "models/speech_ssl/fused_parts.h"

#include <algorithm>

namespace redline::models::speech {

namespace {

bool can_fuse(const torch::Tensor& r, const torch::Tensor& weight, const EncoderPass& pass) {
  return pass.fused && r.device().is_cpu() && weight.scalar_type() == torch::kFloat32 &&
         r.scalar_type() == torch::kFloat32;
}

}  // namespace

void fused::NormInput::keep(const float* x, int64_t begin, int64_t end) {
  if (!centred_.defined()) return;
  KeptRows::write_centred(x, mean(begin), end - begin, centred_.size(1), centred_, begin);
  std::fill(mean(begin), mean(begin) + (end - begin), 0.0f);
}

torch::Tensor feed_forward_part(const LayerNorm& norm, const FeedForward& ff, const torch::Tensor& r, double factor,
                                double dropout, const std::string& place, const EncoderPass& pass) {
  if (can_fuse(r, norm->weight, pass)) return fused::feed_forward_part(norm, ff, r, factor, dropout, place, pass);
  return plain::feed_forward_part(norm, ff, r, factor, dropout, place, pass);
}

torch::Tensor attention_part(const LayerNorm& norm, const SelfAttention& attention, const torch::Tensor& r,
                             double dropout, double dropout_att, const std::string& place, const EncoderPass& pass) {
  if (can_fuse(r, norm->weight, pass))
    return fused::attention_part(norm, attention, r, dropout, dropout_att, place, pass);
  return plain::attention_part(norm, attention, r, dropout, dropout_att, place, pass);
}

torch::Tensor convolution_part(const LayerNorm& norm, const Convolution& conv, const torch::Tensor& r, double dropout,
                               const std::string& place, const EncoderPass& pass) {
  if (can_fuse(r, norm->weight, pass)) return fused::convolution_part(norm, conv, r, dropout, place, pass);
  return plain::convolution_part(norm, conv, r, dropout, place, pass);
}

}  // namespace redline::models::speech
