// The loss is the mean over sequences of (reconstruction summed over time + weight * KL): dividing by time would change
// the balance of the two with every batch. The reported KL is always the unmasked one.
#include "models/sequence_vae/task.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "models/sequence_vae/free_bits.h"
#include "models/sequence_vae/transform.h"

namespace redline::models::sequence_vae {

SequenceVaeTask::SequenceVaeTask(const Options& options, uint64_t seed)
    : options_(options), validation_(options.latent_dim), aggressive_(options.aggressive) {
  options_.check();
  options_.monitor.resolve();
  model_ = options_.is_lstm() ? make_lstm(options_, seed) : make_transformer(options_, seed);
  if (!options_.monitor.disable_metrics_monitoring)
    window_ = std::make_shared<PosteriorWindow>(options_.monitor.window_size);
}

task::BatchSchema SequenceVaeTask::schema() const {
  task::BatchSchema schema;
  if (options_.reads_tokens())
    schema.tensors.push_back({"tokens", torch::kInt64, {-2, -1}, false, "token ids with start and end, padded"});
  else
    schema.tensors.push_back(
        {"values", torch::kFloat32, {-2, -1, options_.input_dim}, false, "real-valued steps, padded"});
  if (options_.input == "embeddings")
    schema.tensors.push_back(
        {"embeddings", torch::kFloat32, {-2, -1, options_.input_dim}, false, "precomputed embeddings of the tokens"});
  schema.tensors.push_back({"lengths", torch::kInt64, {-2}, false, "true length of each sequence"});
  schema.tensors.push_back(
      {"noise", torch::kFloat32, {-2, options_.latent_dim}, true, "the draw of the code, instead of a random one"});
  return schema;
}

std::vector<int64_t> SequenceVaeTask::checked_lengths(const task::Batch& batch) const {
  const torch::Tensor& main = batch.at(options_.reads_tokens() ? "tokens" : "values");
  const torch::Tensor lengths = batch.at("lengths").to(torch::kCPU).contiguous();
  const int64_t shortest = options_.reads_tokens() ? 2 : 1;
  std::vector<int64_t> counts(lengths.const_data_ptr<int64_t>(), lengths.const_data_ptr<int64_t>() + lengths.numel());
  for (size_t b = 0; b < counts.size(); ++b)
    if (counts[b] < shortest || counts[b] > std::min(main.size(1), options_.max_sequence_length))
      throw DataError(fmt::format("Sequence {} of the batch (sample {}) has length {}; expected {} to {}.", b,
                                  batch.sample_ids[b], counts[b], shortest,
                                  std::min(main.size(1), options_.max_sequence_length)));
  return counts;
}

void SequenceVaeTask::check_tokens(const torch::Tensor& packed, const PackedRows& rows,
                                   const task::Batch& batch) const {
  const auto [low, high] = packed.aminmax();
  if (low.item<int64_t>() >= 0 && high.item<int64_t>() < options_.vocab_size) return;
  const torch::Tensor bad = packed.lt(0).logical_or(packed.ge(options_.vocab_size)).nonzero().to(torch::kCPU);
  const int64_t row = bad[0][0].item<int64_t>(), b = rows.sequence[static_cast<size_t>(row)];
  throw DataError(
      fmt::format("Token {} at position {} of sequence {} (sample {}) is outside 0 to {}: model.vocab_size is {}.",
                  packed[row].item<int64_t>(), rows.time[static_cast<size_t>(row)], b,
                  batch.sample_ids[static_cast<size_t>(b)], options_.vocab_size - 1, options_.vocab_size));
}

Sequences SequenceVaeTask::read(const task::Batch& batch) const {
  Sequences out;
  out.rows = pack_rows(checked_lengths(batch), batch.sample_ids);
  const torch::Tensor packed = pack(batch.at(options_.reads_tokens() ? "tokens" : "values"), *out.rows);
  if (!options_.reads_tokens()) {
    out.values = packed;
    return out;
  }
  out.tokens = packed;
  check_tokens(packed, *out.rows, batch);
  if (options_.input == "embeddings") out.embeddings = pack(batch.at("embeddings"), *out.rows);
  return out;
}

SequenceVaeTask::Forward SequenceVaeTask::encode(const task::Batch& batch, task::Context& ctx) {
  Forward out;
  out.sequences = read(batch);
  out.posterior = model_->encode(out.sequences, ctx);
  // The code and its KL are in full precision whatever the encoder ran in.
  const auto full = [](const torch::Tensor& x) {
    return x.scalar_type() == torch::kFloat64 ? x : x.to(torch::kFloat32);
  };
  out.posterior = {full(out.posterior.mean), full(out.posterior.log_variance)};
  const torch::Tensor noise =
      batch.has("noise") ? batch.at("noise") : ctx.normal({batch.size(), options_.latent_dim}, "posterior.noise");
  out.draw = out.posterior.mean + (out.posterior.log_variance * 0.5).exp() * noise.to(out.posterior.mean.options());
  out.kl = kl_per_dimension(out.posterior.mean, out.posterior.log_variance);
  return out;
}

task::Loss SequenceVaeTask::loss(const task::Batch& batch, task::Context& ctx) {
  const Forward forward = encode(batch, ctx);
  const torch::Tensor reconstruction = model_->reconstruct(forward.sequences, forward.draw, ctx);
  const torch::Tensor mean_reconstruction = reconstruction.mean();
  const double weight = kl_weight_now();
  task::Loss out;
  out.value = mean_reconstruction + kl_penalty(forward.kl, options_.free_bits) * weight;
  out.weight = torch::full({}, static_cast<double>(batch.size()), torch::kFloat32);
  const torch::Tensor mean_kl = forward.kl.detach().sum(1).mean();
  out.metrics = {{"reconstruction", mean_reconstruction.detach()},
                 {"kl", mean_kl},
                 {"negative_elbo", mean_reconstruction.detach() + mean_kl},
                 {"kl_weight", torch::full({}, weight, torch::kFloat32)}};
  ctx.output("mu", forward.posterior.mean);
  ctx.output("logvar", forward.posterior.log_variance);
  ctx.output("z", forward.draw);
  ctx.output("kl", forward.kl);
  ctx.output("reconstruction", reconstruction);
  ctx.output("loss", out.value);
  if (ctx.training()) {
    if (ctx.counts)
      note_training(forward.posterior, forward.draw, reconstruction, out.value, forward.sequences.rows->num_rows());
  } else {
    note_validation(forward, reconstruction);
  }
  return out;
}

void SequenceVaeTask::note_training(const Posterior& posterior, const torch::Tensor& draw,
                                    const torch::Tensor& reconstruction, const torch::Tensor& value,
                                    int64_t positions) {
  if (window_) window_->stage(posterior.mean, posterior.log_variance, draw, reconstruction);
  if (!aggressive_.active()) return;
  const auto batch = static_cast<double>(posterior.mean.size(0));
  step_loss_ += value.item<double>() * batch;
  step_words_ += static_cast<double>(positions) - batch;
}

void SequenceVaeTask::note_validation(const Forward& forward, const torch::Tensor& reconstruction) {
  PosteriorWindow one(1);
  one.push(forward.posterior.mean, forward.posterior.log_variance, forward.draw, reconstruction);
  const PosteriorWindow::Snapshot snapshot = one.snapshot();
  validation_.add(snapshot.view(), mutual_information(snapshot.view()));
  validation_nll_ += (reconstruction.detach() + forward.kl.detach().sum(1)).sum().item<double>();
  const auto rows = static_cast<double>(forward.sequences.rows->num_rows());
  validation_words_ += options_.reads_tokens() ? rows - static_cast<double>(snapshot.n) : rows;
}

std::vector<double> SequenceVaeTask::take_validation_sums() {
  std::vector<double> sums = validation_.sums();
  sums.push_back(validation_nll_);
  sums.push_back(validation_words_);
  validation_ = PosteriorStatistics(options_.latent_dim);
  validation_nll_ = validation_words_ = 0.0;
  return sums;
}

std::map<std::string, double> SequenceVaeTask::finish_validation(const std::vector<double>& sums) {
  const auto whole = PosteriorStatistics::of_sums(std::span(sums).first(sums.size() - 2));
  if (whole.count() == 0) return {};
  const double nll = sums[sums.size() - 2], words = sums.back();
  const Information information = whole.information_mean().value_or(Information{});
  aggressive_.validated(information.closed_form);
  return {{"active_units", static_cast<double>(whole.active_units(options_.monitor.active_variance))},
          {"mutual_information", information.closed_form},
          {"mutual_information_paired", information.paired},
          {"kl_whole_set", whole.kl()},
          {"perplexity", std::exp(nll / std::max(1.0, words))}};
}

std::map<std::string, torch::Tensor> SequenceVaeTask::predict(const task::Batch& batch, task::Context& ctx) {
  const Forward forward = encode(batch, ctx);
  return {{"mu", forward.posterior.mean.detach()},
          {"logvar", forward.posterior.log_variance.detach()},
          {"kl", forward.kl.detach()}};
}

std::vector<task::MetricInfo> SequenceVaeTask::metrics() const {
  std::vector<task::MetricInfo> list = {
      {"reconstruction", "nats", "Negative log likelihood of a sequence given its code, summed over time."},
      {"kl", "nats", "KL from the posterior to the prior, per sequence, unmasked."},
      {"negative_elbo", "nats", "Reconstruction plus KL: an upper bound of the negative log likelihood."},
      {"kl_weight", "", "Weight of the KL term in this step."},
      {"active_units", "", "Dimensions whose posterior means vary over the validation set."},
      {"mutual_information", "nats",
       "Estimate of I(x; z) on validation (He et al. 2019), mean over batches weighted by their size; noisy, may be "
       "negative."},
      {"mutual_information_paired", "nats",
       "The same with both of its terms at the same draws, so that their noise cancels."},
      {"kl_whole_set", "nats", "KL over the whole validation set."},
      {"perplexity", "", "exp(negative ELBO per predicted step) on validation."},
  };
  for (task::MetricInfo& info : PosteriorMetricsMonitor::metrics(options_.latent_dim)) list.push_back(std::move(info));
  return list;
}

std::vector<task::ParameterGroup> SequenceVaeTask::parameter_groups() const {
  task::ParameterGroup encoder{"encoder", {}, 1.0, {}}, decoder{"decoder", {}, 1.0, {}};
  for (const auto& item : model_->named_parameters())
    (item.key().rfind("encoder.", 0) == 0 ? encoder : decoder).parameters.push_back(item.key());
  return {encoder, decoder};
}

std::vector<std::string> SequenceVaeTask::groups_to_update() const {
  switch (aggressive_.part()) {
    case AggressiveTraining::Part::Encoder:
      return {"encoder"};
    case AggressiveTraining::Part::Decoder:
      return {"decoder"};
    case AggressiveTraining::Part::Both:
      return {};
  }
  return {};
}

bool SequenceVaeTask::batch_statistics() const { return looks_across_batch(options_.free_bits); }

double SequenceVaeTask::flops_per_sample(double length) const {
  const double positions =
      std::min(length + static_cast<double>(options_.num_ends()), static_cast<double>(options_.max_sequence_length));
  return 3.0 * 2.0 *
         model_->forward_multiply_adds(positions);  // backward is two forwards; a multiply-add is two operations
}

task::Batch SequenceVaeTask::worst_case_batch(int64_t batch_size) const {
  task::Batch batch;
  const int64_t longest = options_.max_sequence_length;
  for (int64_t b = 0; b < batch_size; ++b) batch.sample_ids.push_back(b);
  batch.tensors["lengths"] = torch::full({batch_size}, longest, torch::kInt64);
  if (options_.reads_tokens())
    batch.tensors["tokens"] =
        torch::arange(batch_size * longest, torch::kInt64).remainder(options_.vocab_size).view({batch_size, longest});
  else
    batch.tensors["values"] = torch::arange(batch_size * longest * options_.input_dim, torch::kFloat32)
                                  .sin()
                                  .view({batch_size, longest, options_.input_dim});
  if (options_.input == "embeddings")
    batch.tensors["embeddings"] = torch::arange(batch_size * longest * options_.input_dim, torch::kFloat32)
                                      .sin()
                                      .view({batch_size, longest, options_.input_dim});
  batch.items = batch.padded_items = batch_size * longest;
  return batch;
}

data::CollateSpec SequenceVaeTask::collate() const {
  const std::string main = options_.reads_tokens() ? "tokens" : "values";
  data::CollateSpec spec;
  spec.fields.push_back({main, 0.0, 1, "lengths", false});
  if (options_.input == "embeddings") spec.fields.push_back({"embeddings", 0.0, 1, "", false});
  spec.counted_field = main;
  return spec;
}

std::shared_ptr<data::SampleTransform> SequenceVaeTask::sample_transform() const {
  return std::make_shared<SequenceTransform>(options_);
}

}  // namespace redline::models::sequence_vae
