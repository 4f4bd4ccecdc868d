#include "models/sequence_vae/options.h"

#include <fmt/format.h>

#include "core/error.h"

namespace redline::models::sequence_vae {

using config::Effect;

config::Table<LstmOptions> LstmOptions::fields() {
  config::Table<LstmOptions> t;
  t.add("embed_dim", &LstmOptions::embed_dim, "Width of the token embeddings (jxhe's ni).")
      .at_least(1)
      .effect(Effect::Model);
  t.add("encoder_hidden", &LstmOptions::encoder_hidden, "Units of the encoder (enc_nh).")
      .at_least(1)
      .effect(Effect::Model);
  t.add("decoder_hidden", &LstmOptions::decoder_hidden, "Units of the decoder (dec_nh).")
      .at_least(1)
      .effect(Effect::Model);
  t.add("dropout_in", &LstmOptions::dropout_in, "Dropout of the decoder's input embeddings.").range(0.0, 0.99);
  t.add("dropout_out", &LstmOptions::dropout_out, "Dropout of the decoder's outputs.").range(0.0, 0.99);
  return t;
}

config::Table<FreeBitsOptions> FreeBitsOptions::fields() {
  config::Table<FreeBitsOptions> t;
  t.add("mode", &FreeBitsOptions::mode,
        "Which part of the KL term is free: per_example, per_dimension and per_batch leave it out while it is small, "
        "clamp counts each dimension's batch mean as at least its share.")
      .choices({"none", "per_example", "per_dimension", "per_batch", "clamp"})
      .effect(Effect::Optimisation);
  t.add("target_kl", &FreeBitsOptions::target_kl, "How much KL is free, over all dimensions.")
      .unit("nats")
      .at_least(0.0);
  return t;
}

config::Table<AggressiveOptions> AggressiveOptions::fields() {
  config::Table<AggressiveOptions> t;
  t.add("enabled", &AggressiveOptions::enabled,
        "Train the encoder alone for some steps before each step of the decoder, until validation's mutual information "
        "falls "
        "(He et al. 2019).")
      .effect(Effect::Optimisation);
  t.add("max_inner_steps", &AggressiveOptions::max_inner_steps, "Most encoder steps before a decoder step.")
      .unit("steps")
      .at_least(1);
  t.add("window", &AggressiveOptions::window, "Encoder steps whose loss per word is compared with the window before.")
      .unit("steps")
      .at_least(1);
  return t;
}

config::Table<MonitorOptions> MonitorOptions::fields() {
  config::Table<MonitorOptions> t;
  t.add("disable_metrics_monitoring", &MonitorOptions::disable_metrics_monitoring, "Do not watch the posterior.")
      .flag("disable_metrics_monitoring")
      .effect(Effect::Nothing);
  t.add("fast_detection", &MonitorOptions::fast_detection,
        "Look half as often: every 200 steps, pictures every 2,000 (where the frequencies are left to auto).")
      .flag("fast_detection")
      .effect(Effect::Nothing);
  t.add("update_frequency", &MonitorOptions::update_frequency,
        "Steps between two looks; auto: 100, or 200 with fast_detection.")
      .cadence(config::Counts::Steps)
      .at_least(1)
      .effect(Effect::Nothing)
      .tuned_by("monitor");
  t.add("plot_frequency", &MonitorOptions::plot_frequency,
        "Steps between two pictures; auto: 1,000, or 2,000 with fast_detection.")
      .cadence(config::Counts::Steps)
      .at_least(1)
      .effect(Effect::Nothing);
  t.add("window_size", &MonitorOptions::window_size, "Latest batches whose posteriors a look takes together.")
      .cadence(config::Counts::Batches)
      .at_least(1);
  t.add("verbose", &MonitorOptions::verbose, "A log line at every look.");
  t.add("mutual_information_samples", &MonitorOptions::mutual_information_samples,
        "Most posteriors in one estimate; it cannot exceed the logarithm of their number.")
      .at_least(2);
  t.add("active_variance", &MonitorOptions::active_variance,
        "A unit is active from this variance of its posterior means.")
      .at_least(0.0);
  t.add("small_kl", &MonitorOptions::small_kl, "A KL below this, together with small_information, is a collapse.")
      .unit("nats")
      .at_least(0.0);
  t.add("small_information", &MonitorOptions::small_information,
        "A mutual information below this, together with small_kl, is a collapse.")
      .unit("nats")
      .at_least(0.0);
  t.add("partial_share", &MonitorOptions::partial_share,
        "Fewer active units than this share of all is a partial collapse.")
      .range(0.0, 1.0);
  t.add("patience", &MonitorOptions::patience, "Looks in a row before a collapse is called.").at_least(1);
  return t;
}

void MonitorOptions::resolve() {
  if (update_frequency.is_auto()) update_frequency.set(fast_detection ? 200 : 100);
  if (plot_frequency.is_auto()) plot_frequency.set(fast_detection ? 2000 : 1000);
}

namespace {

void add_data_rows(config::Table<Options>& t) {
  t.add("input", &Options::input,
        "What a sequence is: token ids, real values, or precomputed embeddings (for the encoder) beside token ids.")
      .choices({"tokens", "values", "embeddings"})
      .effect(Effect::Model);
  t.add("column", &Options::column, "Column with the sequence.");
  t.add("embedding_column", &Options::embedding_column,
        "input embeddings: column with the vectors, length x input_dim numbers.");
  t.add("vocab_size", &Options::vocab_size, "Token ids, start and end included: ids are 0 to vocab_size - 1.")
      .at_least(2)
      .effect(Effect::Model);
  t.add("input_dim", &Options::input_dim, "Numbers per step of values, or per precomputed embedding.")
      .at_least(1)
      .effect(Effect::Model);
  t.add("add_start_end", &Options::add_start_end,
        "Put start_id before and end_id after each sequence (off: the data has them).");
  t.add("start_id", &Options::start_id, "Token that begins a sequence.").at_least(0);
  t.add("end_id", &Options::end_id, "Token that ends a sequence.").at_least(0);
  t.add("max_sequence_length", &Options::max_sequence_length,
        "Most positions of a sequence, start and end included; longer ones are cut.")
      .unit("steps")
      .at_least(1)
      .flag("max_sequence_length")
      .effect(Effect::Optimisation);
}

void add_model_rows(config::Table<Options>& t) {
  t.add("architecture", &Options::architecture, "Transformer, or the LSTM of He et al. 2019.")
      .choices({"transformer", "lstm"})
      .effect(Effect::Model);
  t.add("latent_dim", &Options::latent_dim, "Dimensions of the latent code.").at_least(1).effect(Effect::Model);
  t.add("d_model", &Options::d_model, "Width of the Transformer.").at_least(1).effect(Effect::Model);
  t.add("n_heads", &Options::n_heads, "Attention heads.").at_least(1).effect(Effect::Model);
  t.add("d_ff", &Options::d_ff, "Width inside the feed-forward blocks.").at_least(1).effect(Effect::Model);
  t.add("n_encoder_layers", &Options::n_encoder_layers, "Encoder layers.").at_least(1).effect(Effect::Model);
  t.add("n_decoder_layers", &Options::n_decoder_layers, "Decoder layers.").at_least(1).effect(Effect::Model);
  t.add("dropout", &Options::dropout, "Dropout of embeddings, attention weights, feed-forward and residual branches.")
      .range(0.0, 0.99);
  t.add("gradient_checkpointing", &Options::gradient_checkpointing,
        "Keep of a Transformer layer only its input and compute it again in backward: less memory for about a third "
        "more time, and the same numbers.")
      .effect(Effect::Nothing)
      .alias(".gradient_checkpointing");
  t.add("activation", &Options::activation, "Of the feed-forward blocks.")
      .choices({"gelu", "relu"})
      .effect(Effect::Model);
  t.add("norm_first", &Options::norm_first, "Normalise before each block (and once at the end) instead of after it.")
      .effect(Effect::Model);
  t.add("positions", &Options::positions, "Fixed sinusoids, or a learned table of max_sequence_length.")
      .choices({"sinusoidal", "learned"})
      .effect(Effect::Model);
  t.add("pooling", &Options::pooling, "What the posterior is computed from: the last real step, or the mean of all.")
      .choices({"last", "mean"})
      .effect(Effect::Model);
  t.add("values_sigma", &Options::values_sigma, "input values: standard deviation of the reconstruction.").above(0.0);
}

}  // namespace

config::Table<Options> Options::fields() {
  config::Table<Options> t;
  add_model_rows(t);
  add_data_rows(t);
  t.group("lstm", &Options::lstm, "Sizes of the LSTM variant.");
  t.group("kl_schedule", &Options::kl_schedule, "The weight of the KL term over the run.");
  t.group("free_bits", &Options::free_bits, "KL that costs nothing.");
  t.group("aggressive", &Options::aggressive, "Aggressive encoder training.");
  t.group("monitor", &Options::monitor, "PosteriorMetricsMonitor: watches for posterior collapse.");
  return t;
}

void Options::check() const {
  const auto fail = [](const std::string& sentence) { throw ConfigError(sentence); };
  if (!is_lstm() && d_model % n_heads != 0)
    fail(fmt::format("model.d_model ({}) must be a multiple of model.n_heads ({}).", d_model, n_heads));
  if (is_lstm() && input != "tokens")
    fail(fmt::format("model.architecture lstm reads tokens; model.input is {}. Use architecture transformer for it.",
                     input));
  if (reads_tokens() && add_start_end) {
    if (start_id >= vocab_size || end_id >= vocab_size)
      fail(fmt::format("model.start_id ({}) and model.end_id ({}) must be below model.vocab_size ({}).", start_id,
                       end_id, vocab_size));
    if (max_sequence_length < 3)
      fail(fmt::format("model.max_sequence_length ({}) must be at least 3: start, one token, end.",
                       max_sequence_length));
    if (start_id == end_id)
      fail(fmt::format("model.start_id and model.end_id are both {}; they must differ.", start_id));
  }
}

}  // namespace redline::models::sequence_vae
