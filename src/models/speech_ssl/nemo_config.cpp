#include "models/speech_ssl/nemo_config.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "config/yaml_writer.h"
#include "core/error.h"

namespace redline::models::speech {

namespace {

using config::Node;

constexpr const char* kModel = "nemo.collections.asr.models.ssl_models.EncDecDenoiseMaskedTokenPredModel";

struct Section {
  const char *name, *target;
  std::vector<Node::Entry> always;            // what this model is, where NeMo has a choice
  std::vector<std::string_view> not_in_nemo;  // rows of ours
};

Node text(const char* value) { return Node::scalar(value); }

std::vector<Section> sections() {
  return {
      {"preprocessor", "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor", {}, {"count_last_frame"}},
      {"spec_augment",
       "nemo.collections.asr.modules.SpectrogramAugmentation",
       {{"freq_masks", text("0")}, {"time_masks", text("0")}},
       {}},
      {"masking", "nemo.collections.asr.modules.RandomBlockMasking", {}, {}},
      {"quantizer", "nemo.collections.asr.modules.RandomProjectionVectorQuantizer", {}, {}},
      {"encoder",
       "nemo.collections.asr.modules.ConformerEncoder",
       {{"self_attention_model", text("rel_pos")},
        {"untie_biases", text("true")},
        {"conv_norm_type", text("batch_norm")}},
       {}},
      {"decoder", "nemo.collections.asr.modules.MultiSoftmaxDecoder", {}, {}},
      {"loss", "nemo.collections.asr.losses.MultiMLMLoss", {}, {}},
  };
}

}  // namespace

std::string nemo_config(const Node& resolved) {
  const Node* const model = resolved.find("model");
  if (model == nullptr) throw ConfigError("The run's config has no model section, so no .nemo file can be made of it.");
  Node config = Node::map();
  for (const char* key : {"sample_rate", "num_classes", "num_books", "code_dim", "squeeze_single", "mask_position"})
    if (const Node* const value = model->find(key)) config.set_path(key, *value);
  for (const char* key : {"train_ds", "validation_ds", "test_ds"}) config.set_path(key, Node());
  for (const Section& section : sections()) {
    Node written = Node::map({{"_target_", Node::scalar(section.target)}});
    for (const auto& [key, value] : section.always) written.set_path(key, value);
    if (const Node* const own = model->find(section.name))
      for (const auto& [key, value] : own->entries())
        if (std::find(section.not_in_nemo.begin(), section.not_in_nemo.end(), key) == section.not_in_nemo.end())
          // A number that a field of ours keeps as text stands in quotes; NeMo would take it for a word.
          written.set_path(key, value.is_scalar() ? Node::scalar(value.text()) : value);
    config.set_path(section.name, std::move(written));
  }
  config.set_path("target", Node::scalar(kModel));
  return config::write_yaml(config, /*with_origins=*/false);
}

}  // namespace redline::models::speech
