// The `model` section of a sequence VAE job.
#pragma once

#include <cstdint>
#include <string>

#include "config/fields.h"
#include "models/sequence_vae/kl_schedule.h"

namespace redline::models::sequence_vae {

struct LstmOptions {
  int64_t embed_dim = 512;
  int64_t encoder_hidden = 1024, decoder_hidden = 1024;
  double dropout_in = 0.5, dropout_out = 0.5;  // of the decoder
  static config::Table<LstmOptions> fields();
};

struct FreeBitsOptions {
  // none; per_example, per_dimension, per_batch: the KL term (of an example, of one dimension of an example, of the
  // batch) is left out while it is at or below its share of target_kl (Li et al. 2019, masks 1, 2, 3); clamp: each
  // dimension's batch mean counts as at least target_kl / latent (Kingma et al. 2016).
  std::string mode = "none";
  double target_kl = 4.0;  // nats, of all dimensions together
  static config::Table<FreeBitsOptions> fields();
};

struct AggressiveOptions {
  bool enabled = false;
  int64_t max_inner_steps = 99;
  int64_t window = 15;  // inner steps whose loss per word is compared with the window before
  static config::Table<AggressiveOptions> fields();
};

struct MonitorOptions {
  bool disable_metrics_monitoring = false;
  bool fast_detection = false;
  config::Auto<int64_t> update_frequency, plot_frequency;  // steps
  int64_t window_size = 50;                                // batches
  bool verbose = false;
  int64_t mutual_information_samples = 256;
  double active_variance = 0.01, small_kl = 0.1, small_information = 0.1, partial_share = 0.1;
  int64_t patience = 3;
  void resolve();
  static config::Table<MonitorOptions> fields();
};

struct Options {
  std::string architecture = "transformer";  // transformer, lstm
  // Data.
  std::string input = "tokens";  // tokens, values, embeddings
  std::string column = "tokens", embedding_column = "embeddings";
  int64_t vocab_size = 1000;
  int64_t input_dim = 1;  // width of a step of values, or of a precomputed embedding
  bool add_start_end = true;
  int64_t start_id = 1, end_id = 2;
  int64_t max_sequence_length = 1000;
  // Model.
  int64_t latent_dim = 32;
  int64_t d_model = 256, n_heads = 8, d_ff = 1024;
  int64_t n_encoder_layers = 4, n_decoder_layers = 4;
  double dropout = 0.1;
  bool gradient_checkpointing = false;
  std::string activation = "gelu";
  bool norm_first = true;
  std::string positions = "sinusoidal";  // sinusoidal, learned
  std::string pooling = "last";          // last, mean
  double values_sigma = 1.0;
  LstmOptions lstm;
  KlScheduleConfig kl_schedule;
  FreeBitsOptions free_bits;
  AggressiveOptions aggressive;
  MonitorOptions monitor;

  bool is_lstm() const { return architecture == "lstm"; }
  bool reads_tokens() const { return input != "values"; }  // embeddings come with tokens to predict
  // Symbols put around a sequence; they count towards max_sequence_length.
  int64_t num_ends() const { return reads_tokens() && add_start_end ? 2 : 0; }
  // Throws ConfigError for values that contradict each other.
  void check() const;
  static config::Table<Options> fields();
};

}  // namespace redline::models::sequence_vae
