// Batch tensors: images [B, C, H, W] float (either memory format), labels [B]; optionally targets [B, classes] (the
// classes' shares, in place of labels where the loss is a cross-entropy), or what mixup and cutmix in the data tell:
// which class was mixed into each picture, and how much of it.
#include "models/convnext/task.h"

#include <fmt/format.h>

#include "core/error.h"
#include "data/kinds.h"
#include "models/convnext/embedding/embedding_monitor.h"
#include "models/convnext/losses.h"
#include "models/convnext/model.h"
#include "models/convnext/reference_names.h"
#include "task/compiled_part.h"

namespace redline::models::convnext {

namespace {

class ConvNeXtTask : public task::Task, public task::CompiledPart {
 public:
  ConvNeXtTask(const Options& options, uint64_t seed)
      : options_(options),
        model_(options, seed),
        kind_(data::image_kind()),
        store_(std::make_shared<embedding::EmbeddingStore>(options.monitor)) {}

  torch::nn::Module& module() override { return *model_; }

  task::BatchSchema schema() const override {
    return {{{"images", torch::kFloat32, {-2, options_.in_channels, -1, -1}, false, "Pictures, normalised."},
             {"labels", torch::kInt64, {-2}, true, "The class of each picture."},
             {"targets",
              torch::kFloat32,
              {-2, options_.num_classes},
              true,
              "Shares of the classes in each picture, in place of labels (mixup)."},
             {"mixed_labels", torch::kInt64, {-2}, true, "The class mixed into each picture (mixup, cutmix)."},
             {"mixed_shares", torch::kFloat32, {-2}, true, "How much of a picture is of that class."}}};
  }

  task::Loss loss(const task::Batch& batch, task::Context& ctx) override {
    const task::PartResult result = compute(before(batch, ctx), ctx);
    after(batch, result, ctx);
    return result.loss;
  }

  task::CompiledPart* compiled_part() override { return this; }
  task::Tensors before(const task::Batch& batch, task::Context&) override {
    const bool soft = batch.has("targets"), mixed = !soft && batch.has("mixed_shares");
    if (!soft || !options_.classifies()) check_labels(batch);
    if (mixed && !options_.classifies())
      throw ConfigError(
          fmt::format("augment.mixup and augment.cutmix give a picture two classes, which loss {} has no use for; use "
                      "cross_entropy "
                      "or center, or leave them out.",
                      options_.loss));
    return {{"images", batch.at("images")},
            {"targets", soft    ? batch.at("targets")
                        : mixed ? mixed_targets(batch)
                                : batch.at("labels")}};
  }
  task::PartResult compute(const task::Tensors& in, task::Context& ctx) override {
    const Encoded encoded = model_->encode(in.at("images"), ctx);
    ctx.output("features", encoded.features_NHWD.permute({0, 3, 1, 2}));
    ctx.output("embedding", encoded.embedding_NE);
    const torch::Tensor& targets = in.at("targets");
    const torch::Tensor labels = targets.dim() > 1 ? targets.argmax(1) : targets;
    torch::Tensor logits;
    const torch::Tensor embedding = compared(encoded.embedding_NE);
    const MeanLoss mean = mean_loss(embedding, targets, labels, logits);
    task::PartResult out;
    out.loss.value = mean.value;
    out.loss.weight = mean.weight;
    out.notes = {{"embedding", embedding.detach()}, {"labels", labels}};
    if (logits.defined()) {
      ctx.output("logits", logits);
      note_ranks(logits.detach(), labels, out.loss);
    }
    return out;
  }
  void after(const task::Batch& batch, const task::PartResult& result, task::Context& ctx) override {
    const torch::Tensor &embedding = result.notes.at("embedding"), &labels = result.notes.at("labels");
    const bool mixed = !batch.has("targets") && batch.has("mixed_shares");
    if (!ctx.training())
      store_->add_validation(embedding, labels, batch.sample_ids);
    else if (ctx.counts)
      store_->stage(embedding, labels, batch.sample_ids, mixed ? batch.at("mixed_shares") : torch::Tensor());
  }

  std::map<std::string, torch::Tensor> predict(const task::Batch& batch, task::Context& ctx) override {
    const torch::NoGradGuard no_grad;
    const torch::Tensor embedding = model_->encode(batch.at("images"), ctx).embedding_NE;
    std::map<std::string, torch::Tensor> out{
        {"embedding", (options_.normalize_embedding ? unit_rows(embedding) : embedding).contiguous()}};
    if (options_.classifies()) out["logits"] = model_->logits(compared(embedding)).contiguous();
    if (batch.has("labels")) out["labels"] = batch.at("labels");
    return out;
  }

  std::vector<task::MetricInfo> metrics() const override {
    std::vector<task::MetricInfo> list = embedding::EmbeddingMonitor::metrics(options_.monitor);
    if (options_.looks_across_batch()) return list;
    list.push_back({"accuracy", "share", "Pictures whose class has the highest score."});
    list.push_back({"accuracy_top5", "share", "Pictures whose class is among the five highest scores."});
    return list;
  }
  std::vector<double> take_validation_sums() override {
    store_->take_validation();
    return {};
  }
  std::map<std::string, double> finish_validation(const std::vector<double>&) override {
    return store_->finish_validation();
  }
  std::vector<torch::Tensor> validation_rows() override { return store_->taken_rows(); }
  void set_validation_rows(const std::vector<torch::Tensor>& rows) override { store_->set_taken_rows(rows); }
  std::unique_ptr<task::Monitor> monitor() override {
    if (!options_.monitor.looks()) return nullptr;
    return std::make_unique<embedding::EmbeddingMonitor>(store_);
  }
  void begin_attempt() override { store_->begin_attempt(); }
  void committed(int64_t) override { store_->committed(); }
  bool batch_statistics() const override {
    return options_.looks_across_batch() || model_->backbone().batch_statistics();
  }
  bool computes_padding() const override { return false; }
  double flops_per_sample(double) const override {
    const auto head = static_cast<double>(options_.embedding_width() * options_.num_classes +
                                          options_.embedding_dim * options_.feature_dim());
    // Backward is two forwards; a multiply-add is two operations.
    return 3.0 * 2.0 * (model_->backbone().forward_multiply_adds(options_.image_size) + head);
  }

  task::Batch worst_case_batch(int64_t batch_size) const override {
    task::Batch batch;
    const int64_t side = options_.image_size, numel = options_.in_channels * side * side;
    batch.tensors["images"] = torch::arange(numel, torch::kFloat32)
                                  .sin()
                                  .view({1, options_.in_channels, side, side})
                                  .expand({batch_size, -1, -1, -1})
                                  .contiguous(at::MemoryFormat::ChannelsLast);
    batch.tensors["labels"] = torch::arange(batch_size, torch::kInt64).remainder(options_.num_classes);
    for (int64_t i = 0; i < batch_size; ++i) batch.sample_ids.push_back(i);
    batch.items = batch.padded_items = batch_size;
    return batch;
  }

  data::CollateSpec collate() const override {
    data::CollateSpec spec;
    spec.fields.push_back({"images", 0.0, 1, "", false, /*picture=*/true, "image"});
    spec.fields.push_back({"labels", 0.0, 1, "", /*optional=*/true, false, "label"});
    spec.fields.push_back({"targets", 0.0, 1, "", /*optional=*/true, false, "target"});
    spec.fields.push_back({"mixed_labels", 0.0, 1, "", /*optional=*/true, false, "mixed_label"});
    spec.fields.push_back({"mixed_shares", 0.0, 1, "", /*optional=*/true, false, "mixed_share"});
    return spec;
  }
  std::shared_ptr<const data::Kind> kind() const override { return kind_; }
  bool supports_channels_last() const override { return true; }

 private:
  torch::Tensor mixed_targets(const task::Batch& batch) const {
    const torch::Tensor share = batch.at("mixed_shares").unsqueeze(1);
    const auto one_hot = [&](const char* name) {
      return torch::one_hot(batch.at(name), options_.num_classes).to(torch::kFloat32);
    };
    return one_hot("labels") * (1.0 - share) + one_hot("mixed_labels") * share;
  }

  // What a loss compares: of unit length where that is asked for.
  torch::Tensor compared(const torch::Tensor& embedding) const {
    const bool always = options_.loss == "supcon" || options_.loss == "arcface";
    return options_.normalize_embedding || always ? unit_rows(embedding) : embedding;
  }

  MeanLoss mean_loss(const torch::Tensor& embedding, const torch::Tensor& targets, const torch::Tensor& labels,
                     torch::Tensor& logits) {
    if (options_.loss == "supcon") return supervised_contrastive(embedding, labels, options_);
    if (options_.loss == "triplet") return triplet(embedding, labels, options_);
    if (options_.loss == "arcface") {
      logits = arcface_logits(embedding, model_->class_weights(), labels, options_);
      return cross_entropy(logits, labels, options_.label_smoothing);
    }
    logits = model_->logits(embedding);
    MeanLoss out = cross_entropy(logits, targets, options_.label_smoothing);
    if (options_.loss == "center")
      out.value = out.value + options_.center_weight * center_distance(embedding, model_->centers(), labels);
    return out;
  }

  static void note_ranks(const torch::Tensor& logits, const torch::Tensor& labels, task::Loss& out) {
    const torch::Tensor right = logits.gather(1, labels.unsqueeze(1));
    const torch::Tensor above = logits.gt(right).sum(1);
    out.metrics["accuracy"] = above.lt(1).to(torch::kFloat32).mean();
    out.metrics["accuracy_top5"] = above.lt(5).to(torch::kFloat32).mean();
  }

  void check_labels(const task::Batch& batch) const {
    if (!batch.has("labels"))
      throw DataError(
          "The pictures have no labels: give folders of classes, a table with a column 'label', or tars with 'cls'.");
    const torch::Tensor& labels = batch.at("labels");
    if (labels.numel() == 0) return;
    const auto low = labels.min().item<int64_t>(), high = labels.max().item<int64_t>();
    if (low >= 0 && high < options_.num_classes) return;
    const torch::Tensor bad = labels.lt(0).logical_or(labels.ge(options_.num_classes)).nonzero().to(torch::kCPU);
    const auto row = bad[0][0].item<int64_t>();
    throw DataError(
        fmt::format("Picture {} of the batch (sample {}) has label {}; expected 0 to {}: model.num_classes "
                    "is {}. Set it to the data's number of classes.",
                    row, batch.sample_ids[static_cast<size_t>(row)], labels[row].item<int64_t>(),
                    options_.num_classes - 1, options_.num_classes));
  }

  Options options_;
  Model model_;
  std::shared_ptr<const data::Kind> kind_;  // one for all parts of the job: it compares their classes
  std::shared_ptr<embedding::EmbeddingStore> store_;
};

class ConvNeXtConfig : public task::TaskConfig {
 public:
  void add_sections(config::Schema& schema) override { schema.section("model", options_); }
  void resolve(const MachineFacts&) override { Options(options_).complete(); }
  std::unique_ptr<task::Task> build(uint64_t seed) const override { return make_convnext_task(options_, seed); }

 private:
  Options options_;
};

}  // namespace

std::unique_ptr<task::Task> make_convnext_task(Options options, uint64_t seed) {
  options.complete();
  return std::make_unique<ConvNeXtTask>(options, seed);
}

task::TaskEntry convnext_entry() {
  task::TaskEntry entry;
  entry.name = "convnext";
  entry.sentence =
      "Image embeddings with ConvNeXt or a plain CNN: classification, contrastive, triplet, ArcFace or centre loss.";
  entry.make_config = [] { return std::make_unique<ConvNeXtConfig>(); };
  entry.from_reference_names = names_from_original;
  // Another architecture is no claim of these: it changes the model, so nothing proposes it as a gain.
  entry.guide_claims = {{"precision", "", "", "+50-100 %"}};
  entry.monitor_option = "model.monitor.separation_every_n_epochs";
  entry.monitor_plot_option = "model.monitor.pictures_every_n_epochs";
  return entry;
}

}  // namespace redline::models::convnext
