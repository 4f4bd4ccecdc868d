// The rows of the model section. A key NeMo has and this model does not implement is accepted only at the value that
// means "off"; anything else is refused by name.
#include "config/fields.h"
#include "models/speech_ssl/options.h"

namespace redline::models::speech {

namespace {

using config::Effect;
using config::Table;

const char* const kOnlyOff = "not supported; accepted only at the value that leaves it off";
const char* const kStreaming = "part of NeMo's streaming inference, which this trainer does not run";

}  // namespace

Table<PreprocessorOptions> PreprocessorOptions::fields() {
  using T = PreprocessorOptions;
  Table<T> t;
  t.target("nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor");
  t.add("sample_rate", &T::sample_rate, "Rate of the audio; must equal model.sample_rate.").unit("Hz").above(0);
  t.add("normalize", &T::normalize,
        "Normalise each mel bin of a clip, or all bins together; null leaves the values as they are.")
      .choices({"per_feature", "all_features"});
  t.add("window_size", &T::window_size, "Length of the analysis window.").unit("s").above(0);
  t.add("window_stride", &T::window_stride, "Distance between frames.").unit("s").above(0);
  t.add("n_window_size", &T::n_window_size, "Length of the analysis window in samples, instead of window_size.")
      .at_least(2);
  t.add("n_window_stride", &T::n_window_stride, "Distance between frames in samples, instead of window_stride.")
      .at_least(1);
  t.add("window", &T::window, "Shape of the analysis window (symmetric).")
      .choices({"hann", "hamming", "blackman", "bartlett"});
  t.add("features", &T::features, "Number of mel bins.").at_least(1);
  t.add("n_fft", &T::n_fft, "Points of the Fourier transform; null takes the next power of two above the window.")
      .at_least(2);
  t.add("preemph", &T::preemph, "Pre-emphasis factor; null for none.").range(0, 1);
  t.add("lowfreq", &T::lowfreq, "Lower edge of the first mel filter.").unit("Hz").at_least(0);
  t.add("highfreq", &T::highfreq, "Upper edge of the last mel filter; null is half the sample rate.")
      .unit("Hz")
      .above(0);
  t.add("log", &T::log, "Take the natural logarithm.");
  t.add("log_zero_guard_type", &T::log_zero_guard_type, "How the logarithm is kept from zero.")
      .choices({"add", "clamp"});
  t.add("log_zero_guard_value", &T::log_zero_guard_value, "A number, 'tiny' or 'eps' (of float32).");
  t.add("dither", &T::dither, "Standard deviation of the noise added to the waveform in training.").at_least(0);
  t.add("pad_to", &T::pad_to, "Frames are padded to a multiple of this.").at_least(0);
  t.add("pad_value", &T::pad_value, "Value of padded frames.");
  t.add("exact_pad", &T::exact_pad, "Pad so that the frame count is exactly samples / stride.");
  t.add("mag_power", &T::mag_power, "Power the magnitude spectrum is raised to before the mel filters.").above(0);
  t.add("mel_norm", &T::mel_norm, "Area normalisation of the mel filters; null for none.").choices({"slaney"});
  t.add("count_last_frame", &T::count_last_frame,
        "Count one frame more per clip, as NeMo before 2025 did; for the exact numbers of old checkpoints.");
  t.accept("frame_splicing", {"1"}, kOnlyOff);
  t.accept("nb_augmentation_prob", {"0", "0.0"}, kOnlyOff);
  t.accept("nb_max_freq", {"4000"}, "has a meaning only with nb_augmentation_prob");
  t.accept("rng", {"null"}, "draws are keyed by the seed of the run");
  t.accept("use_torchaudio", {"false"}, "deprecated in NeMo");
  t.accept("stft_exact_pad", {"false"}, "deprecated in NeMo");
  t.accept("stft_conv", {"false"}, "deprecated in NeMo");
  return t;
}

Table<SpecAugmentOptions> SpecAugmentOptions::fields() {
  const char* const reason = "NeMo builds it for the parent class and never applies it in this model";
  Table<SpecAugmentOptions> t;
  t.target("nemo.collections.asr.modules.SpectrogramAugmentation");
  t.accept("freq_masks", {"0"}, reason);
  t.accept("time_masks", {"0"}, reason);
  t.accept("freq_width", {"27"}, reason);
  t.accept("time_width", {"0.05"}, reason);
  return t;
}

Table<MaskingOptions> MaskingOptions::fields() {
  using T = MaskingOptions;
  Table<T> t;
  t.target("nemo.collections.asr.modules.RandomBlockMasking");
  t.add("feat_in", &T::feat_in,
        "Size of the masked features; 0 takes it from the preprocessor (or d_model with post_conv).")
      .at_least(0);
  t.add("mask_prob", &T::mask_prob,
        "With overlap: probability that a block starts at a frame. Without: share of frames to hide.")
      .range(0, 1);
  t.add("block_size", &T::block_size, "Frames per block.").at_least(1);
  t.add("mask_value", &T::mask_value, "Constant put in place of hidden frames; null draws a random vector once.");
  t.add("freeze", &T::freeze, "Keep the vector for hidden frames as drawn.");
  t.add("allow_overlap", &T::allow_overlap, "Whether blocks may overlap.");
  t.add("max_mask_ratio", &T::max_mask_ratio,
        "A clip with at most block_size / this many frames hides its first 8 frames.")
      .above(0)
      .at_most(1);
  return t;
}

Table<QuantizerOptions> QuantizerOptions::fields() {
  using T = QuantizerOptions;
  Table<T> t;
  t.target("nemo.collections.asr.modules.RandomProjectionVectorQuantizer");
  t.add("feat_in", &T::feat_in, "Size of the features; 0 takes it from the preprocessor (or d_model with post_conv).")
      .at_least(0);
  t.add("code_dim", &T::code_dim, "Size of a code.").at_least(1);
  t.add("num_classes", &T::num_classes, "Codes per book.").at_least(1);
  t.add("num_books", &T::num_books, "Code books, each with its own targets.").at_least(1);
  t.add("dist_fn", &T::dist_fn,
        "Distance to the codes; both give the same tokens, since codes and projections are unit vectors.")
      .choices({"l2", "cosine"});
  t.add("freeze", &T::freeze, "Has no effect on training: a token has no gradient, so the quantizer never moves.");
  t.add("squeeze_single", &T::squeeze_single, "Leave out the book dimension when there is one book.");
  t.add("combine_time_steps", &T::combine_time_steps,
        "Frames joined into one token; 0 takes subsampling_factor (1 with post_conv).")
      .at_least(0);
  t.accept("time_ahead", {"false"}, kOnlyOff);
  return t;
}

Table<EncoderOptions> EncoderOptions::fields() {
  using T = EncoderOptions;
  Table<T> t;
  t.target("nemo.collections.asr.modules.ConformerEncoder");
  t.add("feat_in", &T::feat_in, "Mel bins of the input; 0 takes them from the preprocessor.")
      .at_least(0)
      .effect(Effect::Model);
  t.add("feat_out", &T::feat_out, "Size of an extra output projection; -1 for none.")
      .at_least(-1)
      .effect(Effect::Model);
  t.add("n_layers", &T::n_layers, "Conformer layers.").at_least(1).effect(Effect::Model);
  t.add("d_model", &T::d_model, "Width of the model.").at_least(2).effect(Effect::Model);
  t.add("use_bias", &T::use_bias, "Biases in the layers' linear and convolution parts.").effect(Effect::Model);
  t.add("subsampling", &T::subsampling, "Kind of sub-sampling.").choices({"dw_striding"});
  t.add("subsampling_factor", &T::subsampling_factor, "Frames per encoder position; a power of two.")
      .at_least(2)
      .effect(Effect::Model);
  t.add("subsampling_conv_channels", &T::subsampling_conv_channels, "Channels of the sub-sampling; -1 for d_model.")
      .at_least(-1)
      .effect(Effect::Model);
  t.add("causal_downsampling", &T::causal_downsampling, "Sub-sampling that sees only earlier frames (post_conv only).");
  t.add("ff_expansion_factor", &T::ff_expansion_factor, "Hidden size of the feed-forward parts over d_model.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("n_heads", &T::n_heads, "Attention heads.").at_least(1).effect(Effect::Model);
  t.add("att_context_size", &T::att_context_size, "[left, right] positions an encoder position may see; -1 for all.");
  t.add("att_context_style", &T::att_context_style, "Whether the context is counted from each position or in chunks.")
      .choices({"regular", "chunked_limited"});
  t.add("xscaling", &T::xscaling, "Multiply the encoder's input by sqrt(d_model).").effect(Effect::Model);
  t.add("pos_emb_max_len", &T::pos_emb_max_len, "Positions prepared ahead in NeMo; here the table grows as needed.")
      .at_least(1);
  t.add("conv_kernel_size", &T::conv_kernel_size, "Taps of the convolution parts; odd.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("conv_context_size", &T::conv_context_size, "null for centred taps, 'causal', or [left, right].");
  t.add("dropout", &T::dropout, "Dropout in the layers.").at_least(0).below(1).effect(Effect::Optimisation);
  t.add("dropout_pre_encoder", &T::dropout_pre_encoder, "Dropout before the first layer.")
      .at_least(0)
      .below(1)
      .effect(Effect::Optimisation);
  t.add("dropout_emb", &T::dropout_emb, "Dropout of the position embeddings.")
      .at_least(0)
      .below(1)
      .effect(Effect::Optimisation);
  t.add("dropout_att", &T::dropout_att, "Dropout of the attention weights.")
      .at_least(0)
      .below(1)
      .effect(Effect::Optimisation);
  t.add("stochastic_depth_drop_prob", &T::stochastic_depth_drop_prob,
        "Probability that the last layer is skipped in a step.")
      .at_least(0)
      .below(1)
      .effect(Effect::Optimisation);
  t.add("stochastic_depth_mode", &T::stochastic_depth_mode, "How the probability grows with depth.")
      .choices({"linear", "uniform"});
  t.add("stochastic_depth_start_layer", &T::stochastic_depth_start_layer, "Layers before this one are never skipped.")
      .at_least(1);
  t.accept("self_attention_model", {"rel_pos"}, "only relative positions (Transformer-XL) are implemented");
  t.accept("untie_biases", {"true"}, "only position biases of each layer's own are implemented");
  t.accept("conv_norm_type", {"batch_norm"}, "only BatchNorm is implemented");
  t.accept("conv_context_style", {"regular"}, kStreaming);
  t.accept("conv_dual_mode", {"false"}, kStreaming);
  t.accept("subsampling_conv_chunking_factor", {"1", "-1"},
           "splits inputs for a limit this sub-sampling does not have");
  t.accept("reduction", {"null"}, kOnlyOff);
  t.accept("reduction_position", {"null"}, kOnlyOff);
  t.accept("reduction_factor", {"1"}, kOnlyOff);
  t.accept("att_context_probs", {"null"}, kStreaming);
  t.accept("att_chunk_context_size", {"null"}, kStreaming);
  t.accept("global_tokens", {"0"}, kOnlyOff);
  t.accept("global_tokens_spacing", {"1"}, kOnlyOff);
  t.accept("global_attn_separate", {"false"}, kOnlyOff);
  t.accept("use_pytorch_sdpa", {"true", "false"}, "chooses between equal kernels in NeMo; redline has its own");
  t.accept("use_pytorch_sdpa_backends", {"null"}, "belongs to use_pytorch_sdpa");
  t.accept("sync_max_audio_length", {"true", "false"}, "a memory detail of NeMo's position table");
  return t;
}

Table<DecoderOptions> DecoderOptions::fields() {
  using T = DecoderOptions;
  Table<T> t;
  t.target("nemo.collections.asr.modules.MultiSoftmaxDecoder");
  t.add("feat_in", &T::feat_in, "Size of the encoder's output; 0 takes it from the encoder.").at_least(0);
  t.add("num_classes", &T::num_classes, "Classes per book; 0 takes model.num_classes.").at_least(0);
  t.add("num_decoders", &T::num_decoders, "Books to predict.").at_least(1);
  t.add("init_mode", &T::init_mode, "Distribution of the initial weights.")
      .choices({"xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal"});
  t.add("use_bias", &T::use_bias, "Bias of the output layer.").effect(Effect::Model);
  t.add("squeeze_single", &T::squeeze_single, "Leave out the book dimension when there is one book.");
  return t;
}

Table<LossOptions> LossOptions::fields() {
  using T = LossOptions;
  Table<T> t;
  t.target("nemo.collections.asr.losses.MultiMLMLoss");
  t.add("combine_time_steps", &T::combine_time_steps,
        "Frames per encoder position in the mask; 0 takes subsampling_factor (1 is set with post_conv).")
      .at_least(0);
  t.add("mask_threshold", &T::mask_threshold, "A position counts when more than this share of its frames is hidden.")
      .range(0, 1);
  t.add("num_decoders", &T::num_decoders, "Books in the loss.").at_least(1);
  t.add("squeeze_single", &T::squeeze_single, "Leave out the book dimension when there is one book.");
  return t;
}

Table<ModelOptions> ModelOptions::fields() {
  using T = ModelOptions;
  Table<T> t;
  t.add("sample_rate", &T::sample_rate, "Rate the audio is brought to.").unit("Hz").above(0);
  t.add("num_classes", &T::num_classes, "Codes per book.").at_least(1).effect(Effect::Model);
  t.add("num_books", &T::num_books, "Code books.").at_least(1).effect(Effect::Model);
  t.add("code_dim", &T::code_dim, "Size of a code.").at_least(1).effect(Effect::Model);
  t.add("squeeze_single", &T::squeeze_single, "Leave out the book dimension when there is one book.");
  t.add("mask_position", &T::mask_position, "Hide frames before the sub-sampling or positions after it.")
      .choices({"pre_conv", "post_conv"})
      .effect(Effect::Model);
  t.add("fused_kernels", &T::fused_kernels,
        "Use this room's own CPU kernels; false runs LibTorch's operators one by one.")
      .effect(Effect::Numerics)
      .tunable();
  t.add("cache_features", &T::cache_features,
        "Let workers compute the clean signal's mel features and keep them in the feature cache.")
      .effect(Effect::Nothing)
      .tunable();
  t.add("longest_clip", &T::longest_clip,
        "Clip length assumed where memory is probed; set it to train_ds.max_duration.")
      .unit("s")
      .above(0);
  t.group("preprocessor", &T::preprocessor, "Waveform to mel features.");
  t.group("spec_augment", &T::spec_augment, "Present in NeMo's files, unused.");
  t.group("masking", &T::masking, "Which frames are hidden.");
  t.group("quantizer", &T::quantizer, "Targets from the clean signal.");
  t.group("encoder", &T::encoder, "The Fast-Conformer.");
  t.group("decoder", &T::decoder, "Softmax over each book.");
  t.group("loss", &T::loss, "Cross-entropy at hidden positions.");
  return t;
}

}  // namespace redline::models::speech
