#include "models/sequence_vae/sequence_model.h"

#include "core/check.h"

namespace redline::models::sequence_vae {

TeacherForcing teacher_forcing(const Sequences& in) {
  const PackedRows& all = *in.rows;
  std::vector<int64_t> lengths, from, to;
  for (int64_t b = 0; b < all.num_sequences(); ++b) {
    REDLINE_CHECK(all.length(b) >= 2, "a token sequence has at least a start and an end");
    lengths.push_back(all.length(b) - 1);
    for (int64_t t = 0; t + 1 < all.length(b); ++t) {
      from.push_back(all.offsets[static_cast<size_t>(b)] + t);
      to.push_back(from.back() + 1);
    }
  }
  const auto pick = [&](const std::vector<int64_t>& index) {
    return in.tokens.index_select(0, torch::tensor(index, torch::kInt64).to(in.tokens.device()));
  };
  return {pack_rows(lengths, all.sample_ids), pick(from), pick(to)};
}

Posterior SequenceModel::encode_padded(const PaddedSequences&, task::Context&) {
  REDLINE_CHECK(false, "asked only where can_pad()");
}

torch::Tensor SequenceModel::reconstruct_padded(const PaddedSequences&, const torch::Tensor&, task::Context&) {
  REDLINE_CHECK(false, "asked only where can_pad()");
}

torch::Tensor sequence_index(const PackedRows& rows, const torch::Tensor& like) {
  return torch::tensor(std::vector<int64_t>(rows.sequence.begin(), rows.sequence.end()), torch::kInt64)
      .to(like.device());
}

torch::Tensor sum_per_sequence(const torch::Tensor& values, const PackedRows& rows) {
  return torch::zeros({rows.num_sequences()}, values.options()).index_add(0, sequence_index(rows, values), values);
}

}  // namespace redline::models::sequence_vae
