// Batch tensors: audio, noisy_audio [B, L] float with audio_lengths, noisy_audio_lengths [B]; optionally mask [B, F, T]
// (used as given) and clean_features [B, T, F] with clean_feature_lengths (from the feature cache, in place of audio).
#include "models/speech_ssl/speech_ssl_task.h"

#include "core/error.h"
#include "core/strings.h"
#include "data/option_names.h"
#include "models/speech_ssl/feature_transform.h"
#include "models/speech_ssl/model.h"
#include "models/speech_ssl/speech_kind.h"
#include "models/speech_ssl/work_estimate.h"

namespace redline::models::speech {

namespace {

class SpeechSslTask : public task::Task, public task::CompiledPart {
 public:
  SpeechSslTask(const ModelOptions& options, uint64_t seed) : options_(options), model_(options, seed) {}

  torch::nn::Module& module() override { return *model_; }

  task::BatchSchema schema() const override {
    const bool cached = options_.cache_features;
    return {
        {{"audio", torch::kFloat32, {-2, -1}, cached, "The clean signal, one clip per row, zeros past its length."},
         {"audio_lengths", torch::kInt64, {-2}, cached, "Samples of each clip."},
         {"noisy_audio",
          torch::kFloat32,
          {-2, -1},
          true,
          "The signal with noise or other speakers; absent: the clean one."},
         {"noisy_audio_lengths", torch::kInt64, {-2}, true, "Samples of each noisy clip."},
         {"clean_features",
          torch::kFloat32,
          {-2, -1, options_.preprocessor.features},
          true,
          "Cached mel features of the clean signal."},
         {"clean_feature_lengths", torch::kInt64, {-2}, true, "Frames of each clip's cached features."},
         {"mask", torch::kFloat32, {-2, options_.masked_features(), -1}, true, "Hidden frames (1) to use as given."}}};
  }

  task::Loss loss(const task::Batch& batch, task::Context& ctx) override {
    check_lengths(batch);
    const ModelImpl::Pass pass = model_->forward(batch, ctx);
    const torch::Tensor& x = pass.encoded.x_BTD;
    const torch::Tensor chosen = pass.selected_BT.reshape({-1}).nonzero().squeeze(1).to(x.device());
    const torch::Tensor x_KD = x.reshape({-1, x.size(2)}).index_select(0, chosen);
    const torch::Tensor tokens_KH =
        pass.tokens_BTH.reshape({-1, options_.num_books}).to(x.device()).index_select(0, chosen);
    const auto weight = static_cast<float>(chosen.size(0));
    const double positions = std::max(1.0, pass.encoded.lengths_B.sum().item<double>());
    task::Loss out;
    out.value = model_->decoder()->loss(x_KD, tokens_KH);
    out.weight = torch::tensor(weight);
    out.metrics["masked_share"] = torch::tensor(static_cast<float>(weight / positions));
    return out;
  }

  task::CompiledPart* compiled_part() override { return this; }
  task::Tensors before(const task::Batch& batch, task::Context& ctx) override {
    check_lengths(batch);
    return model_->outside(batch, ctx);
  }
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override {
    return {model_->traced_loss(in, ctx), {}};
  }

  std::map<std::string, torch::Tensor> predict(const task::Batch& batch, task::Context& ctx) override {
    const torch::NoGradGuard no_grad;
    check_lengths(batch);
    const Encoded encoded = model_->embed(batch, ctx);
    return {{"encoded", encoded.x_BTD.to(torch::kFloat32).transpose(1, 2).contiguous()},
            {"encoded_lengths", encoded.lengths_B}};
  }

  std::vector<task::MetricInfo> metrics() const override {
    return {{"masked_share", "share", "Encoder positions whose tokens were hidden and predicted."}};
  }
  bool batch_statistics() const override { return true; }
  double flops_per_sample(double length) const override { return clip_flops(options_, length); }

  task::Batch worst_case_batch(int64_t batch_size) const override {
    const auto samples = static_cast<int64_t>(options_.longest_clip * static_cast<double>(options_.sample_rate));
    task::Batch batch;
    // A slow saw: every frame has energy, no two neighbours are equal.
    const torch::Tensor clip = torch::arange(samples, torch::kFloat32).remainder(251.0) / 251.0 - 0.5;
    batch.tensors["audio"] = clip.expand({batch_size, samples}).contiguous();
    batch.tensors["noisy_audio"] = batch.tensors["audio"] * 0.5;
    batch.tensors["audio_lengths"] = batch.tensors["noisy_audio_lengths"] =
        torch::full({batch_size}, samples, torch::kInt64);
    for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
    batch.items = batch.padded_items = batch_size * samples;
    return batch;
  }

  data::CollateSpec collate() const override {
    data::CollateSpec spec;
    if (options_.cache_features)
      spec.fields.push_back({"clean_features", options_.preprocessor.pad_value, options_.preprocessor.pad_to,
                             "clean_feature_lengths", false});
    else
      spec.fields.push_back({"audio", 0.0, 1, "audio_lengths", false});
    spec.fields.push_back({"noisy_audio", 0.0, 1, "noisy_audio_lengths", true});
    spec.counted_field = spec.fields.front().name;
    return spec;
  }
  std::shared_ptr<data::SampleTransform> sample_transform() const override {
    return options_.cache_features ? make_feature_transform(options_.preprocessor) : nullptr;
  }
  std::shared_ptr<const data::Kind> kind() const override { return noisy_speech_kind(); }

 private:
  // A length that lies would read past its row.
  static void check_lengths(const task::Batch& batch) {
    for (const char* name : {"audio", "noisy_audio"}) {
      if (!batch.has(name)) continue;
      const int64_t longest = batch.at(name).size(1);
      const torch::Tensor& lengths = batch.at(std::string(name) + "_lengths");
      if (lengths.numel() > 0 && (lengths.min().item<int64_t>() < 0 || lengths.max().item<int64_t>() > longest))
        throw DataError(std::string(name) + "_lengths must lie in 0.." + std::to_string(longest) +
                        " (the row of the batch), found " + std::to_string(lengths.min().item<int64_t>()) + ".." +
                        std::to_string(lengths.max().item<int64_t>()) + ".");
    }
  }

  ModelOptions options_;
  Model model_;
};

class SpeechSslConfig : public task::TaskConfig {
 public:
  void add_sections(config::Schema& schema) override { schema.section("model", options_); }
  void resolve(const MachineFacts&) override { options_.complete(); }
  std::unique_ptr<task::Task> build(uint64_t seed) const override { return make_speech_ssl_task(options_, seed); }

 private:
  ModelOptions options_;
};

bool has_target(const config::Node& request, const char* path, const char* name) {
  const config::Node* node = request.find_path(path);
  return node != nullptr && node->is_scalar() && ends_with(node->text(), name);
}

}  // namespace

std::unique_ptr<task::Task> make_speech_ssl_task(ModelOptions options, uint64_t seed) {
  options.complete();
  return std::make_unique<SpeechSslTask>(options, seed);
}

task::TaskEntry speech_ssl_entry() {
  task::TaskEntry entry;
  entry.name = "speech_ssl";
  entry.sentence = "NEST speech pre-training: predict the tokens of hidden frames with a Fast-Conformer.";
  entry.make_config = [] { return std::make_unique<SpeechSslConfig>(); };
  entry.recognises = [](const config::Node& request) {
    return has_target(request, "model.encoder._target_", "ConformerEncoder") &&
           has_target(request, "model.quantizer._target_", "RandomProjectionVectorQuantizer");
  };
  entry.guide_claims = {{"batch_size", "2", "8", "+100-200 %"},
                        {"precision", "", "", "+50-100 %"},
                        {data::kNumWorkers, "0", "4", "+200-400 %"},
                        {"is_tarred", "", "", "+20-50 %"},
                        {"log_every_n_steps", "", "", "+5-10 %"},
                        {"val_check_interval", "", "", "+10-20 %"},
                        {"compile", "", "", "+10-30 %"}};
  return entry;
}

}  // namespace redline::models::speech
