// The LSTM VAE of He et al. 2019 (jxhe/vae-lagging-encoder): its parameter names and formulas. The encoder's posterior
// comes from the hidden state at each true last step; the decoder gets the code in its first state (c0 = W z, h0 = tanh
// c0) and beside every input.
//
// Rows are handed to LibTorch's LSTM time by time, longest sequence first (its packed layout), so padding costs nothing
// here either.
#include <algorithm>
#include <numeric>

#include "models/layers/keyed_init.h"
#include "models/layers/linear_cross_entropy.h"
#include "models/layers/packed_embedding.h"
#include "models/sequence_vae/sequence_model.h"

namespace redline::models::sequence_vae {

namespace {

// The rows of a batch ordered by time, within a time by falling length.
struct TimeMajor {
  Rows rows;                  // offsets are not used: rows of one sequence are not together
  torch::Tensor index;        // int64 [N]: where each row is in the sequence-major order
  torch::Tensor order;        // int64 [B]: sequences by falling length
  torch::Tensor batch_sizes;  // int64 [T], on the host
};

TimeMajor time_major(const PackedRows& in, const torch::Tensor& like) {
  std::vector<int64_t> order(static_cast<size_t>(in.num_sequences()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return in.length(a) > in.length(b); });
  auto rows = c10::make_intrusive<PackedRows>();
  rows->sample_ids = in.sample_ids;
  rows->offsets = in.offsets;
  std::vector<int64_t> index, sizes;
  for (int64_t t = 0; t < in.longest(); ++t) {
    int64_t size = 0;
    for (int64_t b : order) {
      if (in.length(b) <= t) break;
      index.push_back(in.offsets[static_cast<size_t>(b)] + t);
      rows->sequence.push_back(static_cast<int32_t>(b));
      rows->time.push_back(static_cast<int32_t>(t));
      ++size;
    }
    sizes.push_back(size);
  }
  const auto tensor = [](const std::vector<int64_t>& values) { return torch::tensor(values, torch::kInt64); };
  return {rows, tensor(index).to(like.device()), tensor(order).to(like.device()), tensor(sizes)};
}

struct LstmCellImpl : torch::nn::Module {
  LstmCellImpl(int64_t input, int64_t hidden) {
    weight_ih_l0 = register_parameter("weight_ih_l0", torch::empty({4 * hidden, input}));
    weight_hh_l0 = register_parameter("weight_hh_l0", torch::empty({4 * hidden, hidden}));
    bias_ih_l0 = register_parameter("bias_ih_l0", torch::empty({4 * hidden}));
    bias_hh_l0 = register_parameter("bias_hh_l0", torch::empty({4 * hidden}));
  }
  // data [N, input] in time-major order, states [1, B, hidden] in `order`. Returns (outputs [N, hidden], h, c).
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(const torch::Tensor& data,
                                                                  const torch::Tensor& batch_sizes,
                                                                  const torch::Tensor& h0,
                                                                  const torch::Tensor& c0) const {
    return at::lstm(data, batch_sizes, {h0, c0}, {weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0},
                    /*has_biases=*/true, /*num_layers=*/1, /*dropout=*/0.0, /*train=*/false, /*bidirectional=*/false);
  }
  torch::Tensor weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0;
};
TORCH_MODULE(LstmCell);

struct LstmEncoderImpl : torch::nn::Module {
  explicit LstmEncoderImpl(const Options& o) : hidden(o.lstm.encoder_hidden) {
    embed = register_module("embed", Affine(std::vector<int64_t>{o.vocab_size, o.lstm.embed_dim}, false));
    lstm = register_module("lstm", LstmCell(o.lstm.embed_dim, hidden));
    linear = register_module("linear", Affine(std::vector<int64_t>{2 * o.latent_dim, hidden}, false));
  }
  Posterior encode(const Sequences& in) {
    const TimeMajor order = time_major(*in.rows, in.tokens);
    const torch::Tensor x = at::embedding(embed->weight, in.tokens.index_select(0, order.index));
    const torch::Tensor zero = torch::zeros({1, in.rows->num_sequences(), hidden}, x.options());
    const torch::Tensor last = std::get<1>(lstm->forward(x, order.batch_sizes, zero, zero))[0];
    const torch::Tensor in_batch_order = last.index_select(0, at::argsort(order.order));
    const auto halves = at::linear(in_batch_order, linear->weight).chunk(2, 1);
    return {halves[0], halves[1]};
  }
  int64_t hidden;
  Affine embed{nullptr}, linear{nullptr};
  LstmCell lstm{nullptr};
};
TORCH_MODULE(LstmEncoder);

struct LstmDecoderImpl : torch::nn::Module {
  explicit LstmDecoderImpl(const Options& o) : options(o) {
    embed = register_module("embed", Affine(std::vector<int64_t>{o.vocab_size, o.lstm.embed_dim}, false));
    trans_linear =
        register_module("trans_linear", Affine(std::vector<int64_t>{o.lstm.decoder_hidden, o.latent_dim}, false));
    lstm = register_module("lstm", LstmCell(o.lstm.embed_dim + o.latent_dim, o.lstm.decoder_hidden));
    pred_linear =
        register_module("pred_linear", Affine(std::vector<int64_t>{o.vocab_size, o.lstm.decoder_hidden}, false));
  }
  torch::Tensor reconstruct(const Sequences& in, const torch::Tensor& z, task::Context& ctx) {
    const TeacherForcing forced = teacher_forcing(in);
    const TimeMajor order = time_major(*forced.rows, z);
    torch::Tensor x = packed_embedding({embed->weight, forced.inputs.index_select(0, order.index), {}, {}, 1.0},
                                       order.rows, ctx.dropout_draw(options.lstm.dropout_in, "decoder.dropout_in"));
    x = at::cat({x, z.index_select(0, sequence_index(*order.rows, z))}, 1);
    const torch::Tensor c0 = at::linear(z.index_select(0, order.order), trans_linear->weight).unsqueeze(0);
    torch::Tensor h = std::get<0>(lstm->forward(x, order.batch_sizes, at::tanh(c0), c0));
    const DropoutDraw dropout = ctx.dropout_draw(options.lstm.dropout_out, "decoder.dropout_out");
    if (dropout.active()) h = h * mask_tensor(dropout, *order.rows, h.size(1)).to(h.options());
    if (h.scalar_type() != torch::kFloat64) h = h.to(torch::kFloat32);
    const torch::Tensor nll = linear_cross_entropy(h, pred_linear->weight, forced.targets.index_select(0, order.index));
    return sum_per_sequence(nll, *order.rows);
  }
  Options options;
  Affine embed{nullptr}, trans_linear{nullptr}, pred_linear{nullptr};
  LstmCell lstm{nullptr};
};
TORCH_MODULE(LstmDecoder);

class LstmSteps : public StepDecoder {
 public:
  LstmSteps(LstmDecoder decoder, const torch::Tensor& z) : decoder_(std::move(decoder)), z_(z) {
    c_ = at::linear(z, decoder_->trans_linear->weight).unsqueeze(0);
    h_ = at::tanh(c_);
  }
  torch::Tensor step(const torch::Tensor& input) override {
    const torch::Tensor x = at::cat({at::embedding(decoder_->embed->weight, input), z_}, 1);
    const torch::Tensor sizes = torch::full({1}, z_.size(0), torch::kInt64);
    torch::Tensor out;
    std::tie(out, h_, c_) = decoder_->lstm->forward(x, sizes, h_, c_);
    return at::linear(out, decoder_->pred_linear->weight);
  }

 private:
  LstmDecoder decoder_;
  torch::Tensor z_, h_, c_;
};

class Lstm : public SequenceModel {
 public:
  Lstm(const Options& options, uint64_t seed) : options_(options) {
    encoder_ = register_module("encoder", LstmEncoder(options));
    decoder_ = register_module("decoder", LstmDecoder(options));
    // The reference draws everything from U(-0.01, 0.01) and the embeddings from U(-0.1, 0.1).
    for (auto& item : named_parameters()) {
      const bool embedding = item.key().find("embed.weight") != std::string::npos;
      fill_uniform(item.value(), embedding ? 0.1 : 0.01, seed, item.key());
    }
  }
  Posterior encode(const Sequences& in, task::Context&) override { return encoder_->encode(in); }
  torch::Tensor reconstruct(const Sequences& in, const torch::Tensor& z, task::Context& ctx) override {
    return decoder_->reconstruct(in, z, ctx);
  }
  std::unique_ptr<StepDecoder> decoder_for(const torch::Tensor& z) override {
    return std::make_unique<LstmSteps>(decoder_, z);
  }
  double forward_multiply_adds(double n) const override {
    const LstmOptions& o = options_.lstm;
    const auto in = static_cast<double>(o.embed_dim), code = static_cast<double>(options_.latent_dim);
    const auto encoder = static_cast<double>(o.encoder_hidden), decoder = static_cast<double>(o.decoder_hidden);
    return n * (4.0 * encoder * (in + encoder) + 4.0 * decoder * (in + code + decoder) +
                decoder * static_cast<double>(options_.vocab_size));
  }

 private:
  Options options_;
  LstmEncoder encoder_{nullptr};
  LstmDecoder decoder_{nullptr};
};

}  // namespace

std::shared_ptr<SequenceModel> make_lstm(const Options& options, uint64_t seed) {
  return std::make_shared<Lstm>(options, seed);
}

}  // namespace redline::models::sequence_vae
