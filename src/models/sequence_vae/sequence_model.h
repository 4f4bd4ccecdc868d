// What the task needs of an architecture: posteriors of sequences, reconstruction of sequences given codes, and
// generation step by step. The Transformer and the LSTM implement it.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/layers/packed_rows.h"
#include "models/sequence_vae/options.h"
#include "models/sequence_vae/padded.h"
#include "task/context.h"

namespace redline::models::sequence_vae {

// A batch without its padding. Rows of `rows` are all real positions of all sequences, sequence by sequence.
struct Sequences {
  Rows rows;
  torch::Tensor tokens;      // int64 [N]; undefined for real values
  torch::Tensor values;      // [N, D]: real values
  torch::Tensor embeddings;  // [N, D]: precomputed, instead of the encoder's own
};

struct Posterior {
  torch::Tensor mean, log_variance;  // [B, latent]
};

// Decoding one step at a time for several codes at once; holds whatever the architecture remembers.
class StepDecoder {
 public:
  virtual ~StepDecoder() = default;
  // Feeds one step of every sequence (tokens [B], or values [B, D]) and returns the next step's logits [B, V] or mean
  // [B, D].
  virtual torch::Tensor step(const torch::Tensor& input) = 0;
};

class SequenceModel : public torch::nn::Module {
 public:
  virtual Posterior encode(const Sequences& in, task::Context& ctx) = 0;
  // Negative log likelihood of each sequence given its code z [B, latent], summed over time: [B]. Tokens: positions 1..
  // given those before; values: every position given those before.
  virtual torch::Tensor reconstruct(const Sequences& in, const torch::Tensor& z, task::Context& ctx) = 0;
  // Both of padded sequences, for a compiled step; only where can_pad().
  virtual bool can_pad() const { return false; }
  virtual Posterior encode_padded(const PaddedSequences& in, task::Context& ctx);
  virtual torch::Tensor reconstruct_padded(const PaddedSequences& in, const torch::Tensor& z, task::Context& ctx);
  virtual std::unique_ptr<StepDecoder> decoder_for(const torch::Tensor& z) = 0;
  // Multiply-adds of the forward pass of one sequence of so many positions.
  virtual double forward_multiply_adds(double positions) const = 0;
};

std::shared_ptr<SequenceModel> make_transformer(const Options& options, uint64_t seed);
std::shared_ptr<SequenceModel> make_lstm(const Options& options, uint64_t seed);

// Tokens that a decoder sees (all but each sequence's last) and predicts (all but its first), in order of sequences.
struct TeacherForcing {
  Rows rows;
  torch::Tensor inputs, targets;  // int64 [N - B]
};
TeacherForcing teacher_forcing(const Sequences& in);

// Sum of per-row values over each sequence: [N] -> [B].
torch::Tensor sum_per_sequence(const torch::Tensor& values, const PackedRows& rows);
// int64 [N] on x's device: the sequence of each row.
torch::Tensor sequence_index(const PackedRows& rows, const torch::Tensor& like);

}  // namespace redline::models::sequence_vae
