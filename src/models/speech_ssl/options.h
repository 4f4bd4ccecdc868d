// The model section of a NEST job. Names and defaults are NeMo's: a default here is the NeMo class's own, which holds
// when a key is omitted; the values of nest_fast-conformer.yaml differ in places and come from the file. Where NeMo has
// no default, or one that cannot work (combine_time_steps 1 with sub-sampling), 0 takes the value from the block it
// must agree with.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/node.h"

namespace redline::config {
template <class T>
class Table;
}

namespace redline::models::speech {

// AudioToMelSpectrogramPreprocessor.
struct PreprocessorOptions {
  int64_t sample_rate = 16000;
  std::optional<std::string> normalize = "per_feature";
  std::optional<double> window_size = 0.02, window_stride = 0.01;  // seconds
  std::optional<int64_t> n_window_size, n_window_stride;           // samples, instead of the two above
  std::optional<std::string> window = "hann";
  int64_t features = 64;
  std::optional<int64_t> n_fft;
  std::optional<double> preemph = 0.97;
  double lowfreq = 0.0;
  std::optional<double> highfreq;
  bool log = true;
  std::string log_zero_guard_type = "add";
  std::string log_zero_guard_value = "5.9604644775390625e-08";  // 2^-24, or "tiny" or "eps"
  int64_t frame_splicing = 1;
  double dither = 1e-5;
  int64_t pad_to = 16;
  double pad_value = 0.0;
  bool exact_pad = false;
  double mag_power = 2.0;
  std::optional<std::string> mel_norm = "slaney";
  bool count_last_frame = false;  // ours: releases before 2025 counted one frame more
  static config::Table<PreprocessorOptions> fields();

  int64_t window_samples() const;
  int64_t hop_samples() const;
  int64_t fft_samples() const;
  double guard() const;  // the number behind log_zero_guard_value
};

// RandomBlockMasking.
struct MaskingOptions {
  int64_t feat_in = 0;  // 0: the number of features
  double mask_prob = 0.5;
  int64_t block_size = 48;
  std::optional<double> mask_value;
  bool freeze = true;
  bool allow_overlap = false;
  double max_mask_ratio = 0.8;
  static config::Table<MaskingOptions> fields();
};

// RandomProjectionVectorQuantizer.
struct QuantizerOptions {
  int64_t feat_in = 0;
  int64_t code_dim = 16, num_classes = 8192, num_books = 1;
  std::string dist_fn = "cosine";
  bool freeze = true, squeeze_single = false;
  int64_t combine_time_steps = 0;  // 0: subsampling_factor, or 1 with post_conv
  static config::Table<QuantizerOptions> fields();
};

// ConformerEncoder.
struct EncoderOptions {
  int64_t feat_in = 0, feat_out = -1, n_layers = 17, d_model = 512;
  bool use_bias = true;
  std::string subsampling = "dw_striding";
  int64_t subsampling_factor = 8, subsampling_conv_channels = -1;
  bool causal_downsampling = false;
  int64_t ff_expansion_factor = 4;
  int64_t n_heads = 4;
  config::Node att_context_size;  // [left, right], -1 = all; null as [-1, -1]
  std::string att_context_style = "regular";
  bool xscaling = true;
  int64_t pos_emb_max_len = 5000;
  int64_t conv_kernel_size = 31;
  config::Node conv_context_size;  // null, "causal" or [left, right]
  double dropout = 0.1, dropout_pre_encoder = 0.1, dropout_emb = 0.1, dropout_att = 0.0;
  double stochastic_depth_drop_prob = 0.0;
  std::string stochastic_depth_mode = "linear";
  int64_t stochastic_depth_start_layer = 1;
  static config::Table<EncoderOptions> fields();

  int64_t channels() const { return subsampling_conv_channels == -1 ? d_model : subsampling_conv_channels; }
  int64_t num_stages() const;  // log2 of the factor
  int64_t subsampling_pad() const { return causal_downsampling ? 2 : 1; }
  int64_t out_dim() const { return feat_out > 0 ? feat_out : d_model; }
  int64_t attention_left() const;  // -1 = all
  int64_t attention_right() const;
  int64_t conv_left_context() const;
  std::vector<double> layer_drop_probabilities() const;
};

// MultiSoftmaxDecoder.
struct DecoderOptions {
  int64_t feat_in = 0, num_classes = 0, num_decoders = 1;
  std::string init_mode = "xavier_uniform";
  bool use_bias = false, squeeze_single = false;
  static config::Table<DecoderOptions> fields();
};

// MultiMLMLoss.
struct LossOptions {
  int64_t combine_time_steps = 0, num_decoders = 1;
  double mask_threshold = 0.8;
  bool squeeze_single = false;
  static config::Table<LossOptions> fields();
};

// SpectrogramAugmentation: NeMo's parent class builds it, this model never applies it.
struct SpecAugmentOptions {
  static config::Table<SpecAugmentOptions> fields();
};

struct ModelOptions {
  int64_t sample_rate = 16000, num_classes = 8192, num_books = 1, code_dim = 16;
  bool squeeze_single = false;
  std::string mask_position = "pre_conv";
  PreprocessorOptions preprocessor;
  SpecAugmentOptions spec_augment;
  MaskingOptions masking;
  QuantizerOptions quantizer;
  EncoderOptions encoder;
  DecoderOptions decoder;
  LossOptions loss;
  bool fused_kernels = true;    // ours
  bool cache_features = false;  // ours
  double longest_clip = 20.0;   // ours, seconds
  static config::Table<ModelOptions> fields();

  bool post_conv() const { return mask_position == "post_conv"; }
  // Values after NeMo's own rewriting for post_conv.
  int64_t masked_features() const { return post_conv() ? encoder.d_model : preprocessor.features; }
  int64_t mask_block() const {
    return post_conv() ? masking.block_size / encoder.subsampling_factor : masking.block_size;
  }
  int64_t loss_combine() const { return post_conv() ? 1 : loss.combine_time_steps; }
  // Fills what may be left out and refuses what does not fit together, by name; throws ConfigError.
  void complete();
};

}  // namespace redline::models::speech
