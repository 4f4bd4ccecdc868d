// The Transformer VAE. Encoder: bidirectional, posterior from the last real step (or the mean). Decoder: causal, the
// code is projected and added to every input. With pooling `last` the encoder's last layer is computed only where it is
// read.
#include <cmath>

#include "models/layers/linear_cross_entropy.h"
#include "models/layers/packed_embedding.h"
#include "models/layers/row_linear.h"
#include "models/sequence_vae/sequence_model.h"
#include "models/sequence_vae/transformer_layer.h"

namespace redline::models::sequence_vae {

namespace {

constexpr double kLogTwoPi = 1.8378770664093454836;

LayerOptions layer_options(const Options& o) {
  return {o.d_model,
          o.n_heads,
          o.d_ff,
          o.dropout,
          o.activation == "relu" ? Activation::Relu : Activation::Gelu,
          o.norm_first,
          o.gradient_checkpointing};
}

// Embedding (or input projection), positions, layers: what encoder and decoder share.
struct StackImpl : torch::nn::Module {
  StackImpl(const Options& o, const std::string& stack_name, bool embeds_tokens, int64_t num_layers, uint64_t seed)
      : options(o), name(stack_name) {
    if (embeds_tokens) {
      embed = register_module("embed", Affine(std::vector<int64_t>{o.vocab_size, o.d_model}, false));
      fill_normal(embed->weight, 1.0 / std::sqrt(static_cast<double>(o.d_model)), seed, name + ".embed.weight");
    } else {
      input = register_module("input", Affine(std::vector<int64_t>{o.d_model, o.input_dim}, true));
      default_init(input->weight, input->bias, seed, name + ".input");
    }
    if (o.positions == "learned") {
      position = register_parameter("position", torch::empty({o.max_sequence_length, o.d_model}));
      torch::NoGradGuard no_grad;
      fill_normal(position, 0.02, seed, name + ".position");
    } else {
      position = sinusoid_table(o.max_sequence_length, o.d_model);
    }
    auto list = register_module("layers", torch::nn::ModuleList());
    for (int64_t i = 0; i < num_layers; ++i) {
      layers.emplace_back(layer_options(o), name + ".layers." + std::to_string(i), seed);
      list->push_back(layers.back());
    }
    if (o.norm_first) norm = register_module("norm", Norm(o.d_model));
  }

  const torch::Tensor& positions_for(int64_t length, const torch::Tensor& like) {
    if (!position.requires_grad() && length > position.size(0)) position = sinusoid_table(length, options.d_model);
    if (position.device() != like.device()) position = position.to(like.device());
    return position;
  }
  const Norm& norm_after(size_t layer) const { return layer + 1 < layers.size() ? layers[layer + 1]->norm1 : norm; }

  Stream begin(const torch::Tensor& x) const {
    if (!options.norm_first) return {x, x};
    const Norm& first = layers.front()->norm1;
    return {x, at::layer_norm(x, {x.size(-1)}, first->weight, first->bias)};
  }

  // The same as embed_rows() with padding: [B, T, C].
  torch::Tensor embed_padded(const torch::Tensor& tokens, const torch::Tensor& vectors, const torch::Tensor& code,
                             task::Context& ctx) {
    torch::Tensor x = embed.is_empty()
                          ? at::linear(vectors, input->weight, input->bias)
                          : at::embedding(embed->weight, tokens) * std::sqrt(static_cast<double>(options.d_model));
    if (x.scalar_type() != torch::kFloat64) x = x.to(torch::kFloat32);
    x = x + positions_for(x.size(1), x).to(x.scalar_type()).narrow(0, 0, x.size(1));
    if (code.defined()) x = x + code.to(x.scalar_type()).unsqueeze(1);
    return ctx.dropout(x, options.dropout, name + ".drop");
  }

  // x = tokens' embeddings (or projected vectors) + positions + the code's projection, then dropout.
  torch::Tensor embed_rows(const torch::Tensor& tokens, const torch::Tensor& vectors, const torch::Tensor& code,
                           const Rows& rows, task::Context& ctx) {
    const DropoutDraw dropout = ctx.dropout_draw(options.dropout, name + ".drop");
    const double scale = std::sqrt(static_cast<double>(options.d_model));
    if (!embed.is_empty()) {
      const torch::Tensor& table = embed->weight;
      return packed_embedding({table, tokens, positions_for(rows->longest(), table), code, scale}, rows, dropout);
    }
    torch::Tensor x = row_linear(vectors, input->weight, input->bias);
    if (x.scalar_type() != torch::kFloat64) x = x.to(torch::kFloat32);
    const torch::Tensor time = torch::tensor(std::vector<int64_t>(rows->time.begin(), rows->time.end()), torch::kInt64);
    x = x + positions_for(rows->longest(), x).to(x.scalar_type()).index_select(0, time.to(x.device()));
    if (code.defined()) x = x + code.to(x.scalar_type()).index_select(0, sequence_index(*rows, x));
    return dropout.active() ? x * mask_tensor(dropout, *rows, x.size(1)).to(x.options()) : x;
  }

  Options options;
  std::string name;
  Affine embed{nullptr}, input{nullptr};
  torch::Tensor position;  // a parameter only when learned
  std::vector<TransformerLayer> layers;
  Norm norm{nullptr};
};

struct EncoderImpl : StackImpl {
  EncoderImpl(const Options& o, uint64_t seed)
      : StackImpl(o, "encoder", o.input == "tokens", o.n_encoder_layers, seed) {
    linear = register_module("linear", Affine(std::vector<int64_t>{2 * o.latent_dim, o.d_model}, true));
    default_init(linear->weight, linear->bias, seed, "encoder.linear");
  }

  Posterior encode(const Sequences& in, task::Context& ctx) {
    const torch::Tensor& vectors = in.embeddings.defined() ? in.embeddings : in.values;
    Stream stream = begin(embed_rows(in.tokens, vectors, {}, in.rows, ctx));
    const bool pooled = options.pooling == "last";
    for (size_t i = 0; i < layers.size(); ++i)
      stream = pooled && i + 1 == layers.size()
                   ? layers[i]->forward_last(stream, in.rows, last_rows(*in.rows), norm_after(i), ctx)
                   : layers[i]->forward(stream, in.rows, false, norm_after(i), ctx);
    torch::Tensor summary = stream.input;
    if (!pooled) {
      std::vector<double> inverse;
      for (int64_t b = 0; b < in.rows->num_sequences(); ++b)
        inverse.push_back(1.0 / static_cast<double>(in.rows->length(b)));
      const torch::Tensor sums = torch::zeros({in.rows->num_sequences(), summary.size(1)}, summary.options())
                                     .index_add(0, sequence_index(*in.rows, summary), summary);
      summary = sums * torch::tensor(inverse, torch::kFloat64).to(summary.options()).unsqueeze(1);
    }
    const auto halves = at::linear(summary, linear->weight, linear->bias).chunk(2, 1);
    return {halves[0], halves[1]};
  }

  Posterior encode_padded(const PaddedSequences& in, task::Context& ctx) {
    const torch::Tensor& vectors = in.embeddings.defined() ? in.embeddings : in.values;
    Stream stream = begin(embed_padded(in.tokens, vectors, {}, ctx));
    const bool pooled = options.pooling == "last";
    const torch::Tensor hidden = in.real_BT.logical_not().unsqueeze(1).unsqueeze(1);
    for (size_t i = 0; i < layers.size(); ++i) {
      const bool at_end = pooled && i + 1 == layers.size();
      stream = layers[i]->forward_padded(stream, hidden, at_end ? in.last_B : torch::Tensor(), norm_after(i), ctx);
    }
    torch::Tensor summary = pooled ? stream.input.squeeze(1) : stream.input;
    if (!pooled) {
      const torch::Tensor real = in.real_BT.unsqueeze(2).to(summary.options());
      summary = (summary * real).sum(1) / real.sum(1);
    }
    const auto halves = at::linear(summary, linear->weight, linear->bias).chunk(2, 1);
    return {halves[0], halves[1]};
  }

  Affine linear{nullptr};
};
TORCH_MODULE(Encoder);

struct DecoderImpl : StackImpl {
  DecoderImpl(const Options& o, uint64_t seed) : StackImpl(o, "decoder", o.reads_tokens(), o.n_decoder_layers, seed) {
    trans_linear = register_module("trans_linear", Affine(std::vector<int64_t>{o.d_model, o.latent_dim}, false));
    const int64_t out = o.reads_tokens() ? o.vocab_size : o.input_dim;
    pred_linear = register_module("pred_linear", Affine(std::vector<int64_t>{out, o.d_model}, false));
    torch::Tensor none;
    default_init(trans_linear->weight, none, seed, "decoder.trans_linear");
    default_init(pred_linear->weight, none, seed, "decoder.pred_linear");
  }

  torch::Tensor hidden(const torch::Tensor& tokens, const torch::Tensor& vectors, const torch::Tensor& z,
                       const Rows& rows, task::Context& ctx) {
    Stream stream = begin(embed_rows(tokens, vectors, at::linear(z, trans_linear->weight), rows, ctx));
    for (size_t i = 0; i < layers.size(); ++i) stream = layers[i]->forward(stream, rows, true, norm_after(i), ctx);
    return stream.input;
  }

  torch::Tensor reconstruct(const Sequences& in, const torch::Tensor& z, task::Context& ctx) {
    if (options.reads_tokens()) {
      const TeacherForcing forced = teacher_forcing(in);
      const torch::Tensor h = hidden(forced.inputs, {}, z, forced.rows, ctx);
      return sum_per_sequence(linear_cross_entropy(h, pred_linear->weight, forced.targets), *forced.rows);
    }
    const torch::Tensor predicted = row_linear(hidden({}, shifted(in), z, in.rows, ctx), pred_linear->weight);
    const torch::Tensor error = (in.values - predicted.to(in.values.scalar_type())) / options.values_sigma;
    const double constant =
        0.5 * static_cast<double>(options.input_dim) * (kLogTwoPi + 2.0 * std::log(options.values_sigma));
    return sum_per_sequence(error.square().sum(1) * 0.5 + constant, *in.rows);
  }

  torch::Tensor hidden_padded(const torch::Tensor& tokens, const torch::Tensor& vectors, const torch::Tensor& z,
                              const torch::Tensor& real_BT, task::Context& ctx) {
    Stream stream = begin(embed_padded(tokens, vectors, at::linear(z, trans_linear->weight), ctx));
    const int64_t time = real_BT.size(1);
    const torch::Tensor later = torch::ones({time, time}, real_BT.options()).triu(1);
    const torch::Tensor unseen = later.logical_or(real_BT.logical_not().unsqueeze(1).unsqueeze(1));
    for (size_t i = 0; i < layers.size(); ++i)
      stream = layers[i]->forward_padded(stream, unseen, {}, norm_after(i), ctx);
    return stream.input;
  }

  torch::Tensor reconstruct_padded(const PaddedSequences& in, const torch::Tensor& z, task::Context& ctx) {
    const auto in_full = [](const torch::Tensor& x) {
      return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
    };
    const int64_t time = in.real_BT.size(1);
    if (options.reads_tokens()) {
      const torch::Tensor real = in.real_BT.narrow(1, 1, time - 1), targets = in.tokens.narrow(1, 1, time - 1);
      const torch::Tensor h = hidden_padded(in.tokens.narrow(1, 0, time - 1), {}, z, real, ctx);
      const torch::Tensor logits = in_full(at::linear(h, pred_linear->weight));
      const torch::Tensor nll = -logits.log_softmax(2).gather(2, targets.unsqueeze(2)).squeeze(2);
      return (nll * real.to(nll.options())).sum(1);
    }
    const torch::Tensor moved = torch::constant_pad_nd(in.values.narrow(1, 0, time - 1), {0, 0, 1, 0});
    const torch::Tensor predicted = at::linear(hidden_padded({}, moved, z, in.real_BT, ctx), pred_linear->weight);
    const torch::Tensor error = (in.values - predicted.to(in.values.scalar_type())) / options.values_sigma;
    const double constant =
        0.5 * static_cast<double>(options.input_dim) * (kLogTwoPi + 2.0 * std::log(options.values_sigma));
    return ((error.square().sum(2) * 0.5 + constant) * in.real_BT.to(error.options())).sum(1);
  }

  // Each sequence moved one step later, beginning with zeros.
  static torch::Tensor shifted(const Sequences& in) {
    torch::Tensor moved = torch::zeros_like(in.values);
    const int64_t rows = in.rows->num_rows();
    if (rows > 1) moved.narrow(0, 1, rows - 1).copy_(in.values.narrow(0, 0, rows - 1));
    for (int64_t b = 0; b < in.rows->num_sequences(); ++b)
      if (in.rows->length(b) > 0) moved[in.rows->offsets[static_cast<size_t>(b)]].zero_();
    return moved;
  }

  Affine trans_linear{nullptr}, pred_linear{nullptr};
};
TORCH_MODULE(Decoder);

// Generation with cached keys and values.
class TransformerSteps : public StepDecoder {
 public:
  TransformerSteps(Decoder decoder, const torch::Tensor& z)
      : decoder_(std::move(decoder)),
        caches_(decoder_->layers.size()),
        code_(at::linear(z, decoder_->trans_linear->weight)) {}

  torch::Tensor step(const torch::Tensor& input) override {
    const torch::Tensor place = decoder_->positions_for(time_ + 1, code_)[time_];
    torch::Tensor x;
    if (decoder_->options.reads_tokens())
      x = at::embedding(decoder_->embed->weight, input) * std::sqrt(static_cast<double>(decoder_->options.d_model));
    else
      x = at::linear(input, decoder_->input->weight, decoder_->input->bias);
    Stream stream = decoder_->begin(x + place.to(x.scalar_type()) + code_);
    for (size_t i = 0; i < caches_.size(); ++i)
      stream = decoder_->layers[i]->forward_step(stream, caches_[i], decoder_->norm_after(i));
    ++time_;
    return at::linear(stream.input, decoder_->pred_linear->weight);
  }

 private:
  Decoder decoder_;
  std::vector<TransformerLayerImpl::Cache> caches_;
  torch::Tensor code_;
  int64_t time_ = 0;
};

class Transformer : public SequenceModel {
 public:
  Transformer(const Options& options, uint64_t seed) : options_(options) {
    torch::NoGradGuard no_grad;
    encoder_ = register_module("encoder", Encoder(options, seed));
    decoder_ = register_module("decoder", Decoder(options, seed));
  }
  Posterior encode(const Sequences& in, task::Context& ctx) override { return encoder_->encode(in, ctx); }
  torch::Tensor reconstruct(const Sequences& in, const torch::Tensor& z, task::Context& ctx) override {
    return decoder_->reconstruct(in, z, ctx);
  }
  bool can_pad() const override { return true; }
  Posterior encode_padded(const PaddedSequences& in, task::Context& ctx) override {
    return encoder_->encode_padded(in, ctx);
  }
  torch::Tensor reconstruct_padded(const PaddedSequences& in, const torch::Tensor& z, task::Context& ctx) override {
    return decoder_->reconstruct_padded(in, z, ctx);
  }
  std::unique_ptr<StepDecoder> decoder_for(const torch::Tensor& z) override {
    return std::make_unique<TransformerSteps>(decoder_, z);
  }
  double forward_multiply_adds(double n) const override {
    const auto width = static_cast<double>(options_.d_model), hidden = static_cast<double>(options_.d_ff);
    const double layer = n * (4.0 * width * width + 2.0 * width * hidden);
    const double out = static_cast<double>(options_.reads_tokens() ? options_.vocab_size : options_.input_dim);
    const auto encoders = static_cast<double>(options_.n_encoder_layers),
               decoders = static_cast<double>(options_.n_decoder_layers);
    double total = (encoders + decoders) * layer + n * width * out;
    total += encoders * 2.0 * n * n * width + decoders * n * n * width;  // the causal half
    if (options_.pooling == "last") total -= (n - 1.0) * (2.0 * width * width + 2.0 * width * hidden + 2.0 * n * width);
    return total;
  }

 private:
  Options options_;
  Encoder encoder_{nullptr};
  Decoder decoder_{nullptr};
};

}  // namespace

std::shared_ptr<SequenceModel> make_transformer(const Options& options, uint64_t seed) {
  return std::make_shared<Transformer>(options, seed);
}

}  // namespace redline::models::sequence_vae
