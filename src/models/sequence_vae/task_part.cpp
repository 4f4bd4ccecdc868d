// What a compiled step computes of the sequence VAE: the same loss over padded sequences. Lengths are rounded up to one
// of a few, so that a job has few shapes.
#include "models/sequence_vae/free_bits.h"
#include "models/sequence_vae/task.h"

namespace redline::models::sequence_vae {

namespace {

// Longest lengths of a compiled step: this many at most.
constexpr int64_t kBuckets = 8;

int64_t bucket_of(int64_t time, int64_t longest) {
  const int64_t unit = std::max<int64_t>(8, (longest / kBuckets + 7) / 8 * 8);
  return (time + unit - 1) / unit * unit;
}

torch::Tensor padded_to(const torch::Tensor& x, int64_t time) {
  std::vector<int64_t> pads(static_cast<size_t>(2 * (x.dim() - 1)), 0);
  pads.back() = time - x.size(1);
  return pads.back() == 0 ? x : torch::constant_pad_nd(x, pads);
}

}  // namespace

std::string SequenceVaeTask::refusal() const {
  return model_->can_pad() ? std::string() : "the LSTM runs step by step, which is not worth compiling";
}

task::Tensors SequenceVaeTask::before(const task::Batch& batch, task::Context&) {
  const std::vector<int64_t> lengths = checked_lengths(batch);
  const torch::Tensor& main = batch.at(options_.reads_tokens() ? "tokens" : "values");
  const int64_t time = bucket_of(main.size(1), options_.max_sequence_length);
  const torch::Tensor counts = torch::tensor(lengths, torch::kInt64).to(main.device());
  const torch::Tensor real = torch::arange(time, counts.options()).unsqueeze(0).lt(counts.unsqueeze(1));
  task::Tensors in = {{"real", real},
                      {"last", counts - 1},
                      {"kl_weight", torch::full({}, kl_weight_now(), main.options().dtype(torch::kFloat32))}};
  if (options_.reads_tokens()) {
    in["tokens"] = padded_to(main, time) * real;
    const Rows rows = pack_rows(lengths, batch.sample_ids);
    check_tokens(pack(main, *rows), *rows, batch);
  } else {
    in["values"] = padded_to(main, time) * real.unsqueeze(2).to(main.options());
  }
  if (options_.input == "embeddings") in["embeddings"] = padded_to(batch.at("embeddings"), time);
  if (batch.has("noise")) in["noise"] = batch.at("noise");
  return in;
}

task::PartResult SequenceVaeTask::compute(const task::Tensors& in, task::Context& ctx) {
  const auto given = [&](const char* name) {
    const auto found = in.find(name);
    return found == in.end() ? torch::Tensor() : found->second;
  };
  const PaddedSequences sequences{given("tokens"), given("values"), given("embeddings"), given("real"), given("last")};
  const auto full = [](const torch::Tensor& x) {
    return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  };
  const Posterior raw = model_->encode_padded(sequences, ctx);
  const Posterior posterior{full(raw.mean), full(raw.log_variance)};
  torch::Tensor noise = given("noise");
  if (!noise.defined()) noise = ctx.normal({posterior.mean.size(0), options_.latent_dim}, "posterior.noise");
  const torch::Tensor draw = posterior.mean + (posterior.log_variance * 0.5).exp() * noise.to(posterior.mean.options());
  const torch::Tensor kl = kl_per_dimension(posterior.mean, posterior.log_variance);
  const torch::Tensor reconstruction = model_->reconstruct_padded(sequences, draw, ctx);
  const torch::Tensor mean_reconstruction = reconstruction.mean(), mean_kl = kl.detach().sum(1).mean();
  const torch::Tensor weight = given("kl_weight");
  task::PartResult out;
  out.loss.value = mean_reconstruction + kl_penalty(kl, options_.free_bits) * weight;
  out.loss.weight = torch::full({}, static_cast<double>(posterior.mean.size(0)), weight.options());
  out.loss.metrics = {{"reconstruction", mean_reconstruction.detach()},
                      {"kl", mean_kl},
                      {"negative_elbo", mean_reconstruction.detach() + mean_kl},
                      {"kl_weight", weight}};
  out.notes = {{"mu", posterior.mean.detach()},
               {"logvar", posterior.log_variance.detach()},
               {"z", draw.detach()},
               {"reconstruction", reconstruction.detach()}};
  for (const auto& [name, tensor] : out.notes) ctx.output(name, tensor);
  ctx.output("kl", kl);
  ctx.output("loss", out.loss.value);
  return out;
}

void SequenceVaeTask::after(const task::Batch& batch, const task::PartResult& result, task::Context& ctx) {
  if (!ctx.training() || !ctx.counts) return;
  const task::Tensors& notes = result.notes;
  note_training({notes.at("mu"), notes.at("logvar")}, notes.at("z"), notes.at("reconstruction"), result.loss.value,
                batch.at("lengths").sum().item<int64_t>());
}

}  // namespace redline::models::sequence_vae
