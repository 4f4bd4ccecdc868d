// Derived values and the checks between blocks of the model section; the tables are in option_tables.cpp.
#include "models/speech_ssl/options.h"

#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/strings.h"

namespace redline::models::speech {

namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& found, const std::string& expected) {
  throw ConfigError("model." + key + " is " + found + ": " + expected);
}

void need_equal(const std::string& key, int64_t found, const std::string& other, int64_t expected) {
  if (found != expected)
    refuse(key, std::to_string(found),
           "it must equal " + other + " (" + std::to_string(expected) + "). Change one of the two.");
}

void fill(int64_t& value, int64_t from) {
  if (value == 0) value = from;
}

int64_t context_side(const config::Node& node, size_t side) {
  if (node.is_null()) return -1;
  const bool pair =
      node.is_list() && node.items().size() == 2 && node.items()[0].is_scalar() && node.items()[1].is_scalar();
  const auto value = pair ? node.items()[side].as_int() : std::nullopt;
  if (!value || *value < -1)
    refuse("encoder.att_context_size", "not a pair of whole numbers",
           "give [left, right] in encoder frames, -1 for no limit. Several contexts drawn at random are for streaming "
           "models and are "
           "not supported.");
  return *value;
}

}  // namespace

int64_t PreprocessorOptions::window_samples() const {
  return n_window_size ? *n_window_size : static_cast<int64_t>(*window_size * static_cast<double>(sample_rate));
}
int64_t PreprocessorOptions::hop_samples() const {
  return n_window_stride ? *n_window_stride : static_cast<int64_t>(*window_stride * static_cast<double>(sample_rate));
}
int64_t PreprocessorOptions::fft_samples() const {
  return n_fft ? *n_fft : static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(window_samples())));
}
double PreprocessorOptions::guard() const {
  if (log_zero_guard_value == "tiny") return static_cast<double>(std::numeric_limits<float>::min());
  if (log_zero_guard_value == "eps") return static_cast<double>(std::numeric_limits<float>::epsilon());
  const auto value = parse_double(log_zero_guard_value);
  if (!value || !(*value > 0.0))
    refuse("preprocessor.log_zero_guard_value", "'" + log_zero_guard_value + "'",
           "give a number above 0, 'tiny' or 'eps'.");
  return *value;
}

int64_t EncoderOptions::num_stages() const { return std::bit_width(static_cast<uint64_t>(subsampling_factor)) - 1; }
int64_t EncoderOptions::attention_left() const { return context_side(att_context_size, 0); }
int64_t EncoderOptions::attention_right() const { return context_side(att_context_size, 1); }

int64_t EncoderOptions::conv_left_context() const {
  if (conv_context_size.is_null()) return (conv_kernel_size - 1) / 2;
  if (conv_context_size.is_scalar() && conv_context_size.text() == "causal") return conv_kernel_size - 1;
  if (conv_context_size.is_list() && conv_context_size.items().size() == 2) {
    const auto left = conv_context_size.items()[0].as_int(), right = conv_context_size.items()[1].as_int();
    if (left && right && *left >= 0 && *right >= 0 && *left + *right + 1 == conv_kernel_size) return *left;
  }
  refuse("encoder.conv_context_size", "not usable",
         "give null, 'causal', or [left, right] with left + right + 1 = conv_kernel_size (" +
             std::to_string(conv_kernel_size) + ").");
}

// NeMo, compute_stochastic_depth_drop_probs: 0 before the start layer, then l/L * p (linear) or p (uniform).
std::vector<double> EncoderOptions::layer_drop_probabilities() const {
  std::vector<double> probabilities(static_cast<size_t>(n_layers), 0.0);
  const int64_t affected = n_layers - stochastic_depth_start_layer;
  for (int64_t l = 1; l <= affected; ++l)
    probabilities[static_cast<size_t>(stochastic_depth_start_layer + l - 1)] =
        stochastic_depth_mode == "linear"
            ? static_cast<double>(l) / static_cast<double>(affected) * stochastic_depth_drop_prob
            : stochastic_depth_drop_prob;
  return probabilities;
}

namespace {

void check_preprocessor(PreprocessorOptions& p) {
  // The class default of the seconds yields to samples that were given, as long as nobody wrote both.
  if (p.n_window_size && p.window_size == PreprocessorOptions().window_size) p.window_size.reset();
  if (p.n_window_stride && p.window_stride == PreprocessorOptions().window_stride) p.window_stride.reset();
  if (p.window_size && p.n_window_size)
    refuse("preprocessor.n_window_size", "given beside window_size", "give only one of the two.");
  if (p.window_stride && p.n_window_stride)
    refuse("preprocessor.n_window_stride", "given beside window_stride", "give only one of the two.");
  if (!p.window_size && !p.n_window_size)
    refuse("preprocessor.window_size", "null", "give it in seconds, or n_window_size in samples.");
  if (!p.window_stride && !p.n_window_stride)
    refuse("preprocessor.window_stride", "null", "give it in seconds, or n_window_stride in samples.");
  if (p.window_samples() < 2 || p.hop_samples() < 1)
    refuse("preprocessor.window_size", "shorter than two samples", "check window_size, window_stride and sample_rate.");
  if (p.fft_samples() < p.window_samples())
    refuse("preprocessor.n_fft", std::to_string(p.fft_samples()),
           "it must be at least the window (" + std::to_string(p.window_samples()) + " samples).");
  if (p.exact_pad && p.hop_samples() % 2 == 1)
    refuse("preprocessor.exact_pad", "true",
           "it needs an even hop; window_stride gives " + std::to_string(p.hop_samples()) + " samples.");
  (void)p.guard();
}

void check_encoder(EncoderOptions& e) {
  if (e.n_heads < 1 || e.d_model % e.n_heads != 0)
    refuse("encoder.n_heads", std::to_string(e.n_heads),
           "d_model (" + std::to_string(e.d_model) + ") must be a multiple of it.");
  if (e.conv_kernel_size % 2 == 0)
    refuse("encoder.conv_kernel_size", std::to_string(e.conv_kernel_size), "it must be odd.");
  if (e.subsampling_factor < 2 || !std::has_single_bit(static_cast<uint64_t>(e.subsampling_factor)))
    refuse("encoder.subsampling_factor", std::to_string(e.subsampling_factor),
           "it must be a power of two, at least 2.");
  if (e.channels() < 1)
    refuse("encoder.subsampling_conv_channels", std::to_string(e.subsampling_conv_channels),
           "give at least 1, or -1 for d_model.");
  if (e.stochastic_depth_start_layer > e.n_layers)
    refuse("encoder.stochastic_depth_start_layer", std::to_string(e.stochastic_depth_start_layer),
           "it must lie in 1.." + std::to_string(e.n_layers) + " (n_layers).");
  (void)e.attention_left();
  (void)e.attention_right();
  (void)e.conv_left_context();
}

}  // namespace

void ModelOptions::complete() {
  check_preprocessor(preprocessor);
  check_encoder(encoder);
  need_equal("preprocessor.sample_rate", preprocessor.sample_rate, "model.sample_rate", sample_rate);
  fill(encoder.feat_in, preprocessor.features);
  need_equal("encoder.feat_in", encoder.feat_in, "preprocessor.features", preprocessor.features);
  // In post_conv NeMo overwrites these two with d_model, whatever the file says.
  if (post_conv()) masking.feat_in = quantizer.feat_in = encoder.d_model;
  fill(masking.feat_in, masked_features());
  fill(quantizer.feat_in, masked_features());
  const int64_t frames_per_token = post_conv() ? 1 : encoder.subsampling_factor;
  fill(quantizer.combine_time_steps, frames_per_token);
  fill(loss.combine_time_steps, frames_per_token);
  fill(decoder.feat_in, encoder.out_dim());
  fill(decoder.num_classes, num_classes);
  need_equal("masking.feat_in", masking.feat_in, post_conv() ? "encoder.d_model" : "preprocessor.features",
             masked_features());
  need_equal("quantizer.feat_in", quantizer.feat_in, post_conv() ? "encoder.d_model" : "preprocessor.features",
             masked_features());
  need_equal("decoder.feat_in", decoder.feat_in, "the encoder's output size", encoder.out_dim());
  need_equal("quantizer.num_classes", quantizer.num_classes, "decoder.num_classes", decoder.num_classes);
  need_equal("quantizer.num_books", quantizer.num_books, "decoder.num_decoders", decoder.num_decoders);
  need_equal("loss.num_decoders", loss.num_decoders, "decoder.num_decoders", decoder.num_decoders);
  need_equal("num_classes", num_classes, "quantizer.num_classes", quantizer.num_classes);
  need_equal("num_books", num_books, "quantizer.num_books", quantizer.num_books);
  need_equal("code_dim", code_dim, "quantizer.code_dim", quantizer.code_dim);
  if (squeeze_single != quantizer.squeeze_single || squeeze_single != decoder.squeeze_single ||
      squeeze_single != loss.squeeze_single)
    refuse("squeeze_single", squeeze_single ? "true" : "false", "quantizer, decoder and loss must say the same.");
  if (mask_block() < 1)
    refuse("masking.block_size", std::to_string(masking.block_size),
           "post_conv divides it by subsampling_factor (" + std::to_string(encoder.subsampling_factor) +
               "), which leaves no frame.");
  if (!post_conv()) {
    if (encoder.causal_downsampling)
      refuse("encoder.causal_downsampling", "true",
             "it makes one frame more than the tokens have (NeMo stops here too). Set it to false, or mask_position to "
             "post_conv.");
    need_equal("loss.combine_time_steps", loss.combine_time_steps, "encoder.subsampling_factor",
               encoder.subsampling_factor);
    need_equal("quantizer.combine_time_steps", quantizer.combine_time_steps, "encoder.subsampling_factor",
               encoder.subsampling_factor);
    if (preprocessor.pad_to < 1 || preprocessor.pad_to % encoder.subsampling_factor != 0)
      refuse("preprocessor.pad_to", std::to_string(preprocessor.pad_to),
             "tokens and masks group " + std::to_string(encoder.subsampling_factor) +
                 " frames, so it must be a multiple of subsampling_factor.");
  }
  if (cache_features && preprocessor.dither > 0.0)
    refuse("cache_features", "true",
           "dither draws new noise for every step, so nothing can be kept. Set preprocessor.dither to 0.");
  if (cache_features && (preprocessor.exact_pad || preprocessor.mag_power != 2.0 ||
                         preprocessor.normalize.value_or("") != "per_feature" ||
                         !std::has_single_bit(static_cast<uint64_t>(preprocessor.fft_samples()))))
    refuse(
        "cache_features", "true",
        "workers compute only per_feature-normalised power features with a power-of-two n_fft and without exact_pad.");
}

}  // namespace redline::models::speech
