#include "models/convnext/embedding/options.h"

namespace redline::models::embedding {

config::Table<EmbeddingOptions> EmbeddingOptions::fields() {
  using O = EmbeddingOptions;
  using config::Counts, config::Effect;
  config::Table<O> t;
  t.about("What is measured and drawn of the training's and the validation's embeddings.");
  t.add("separation_every_n_epochs", &O::separation_every_n_epochs,
        "Epochs between two measurements of how well embeddings separate classes; 0 for none.")
      .unit("epochs")
      .at_least(0)
      .cadence(Counts::Epochs)
      .effect(Effect::Nothing)
      .tuned_by("monitor_epochs")
      .flag("separation_every_n_epochs");
  t.add("pictures_every_n_epochs", &O::pictures_every_n_epochs,
        "Epochs between two pictures of the embeddings and the files that are saved with them; 0 for none.")
      .unit("epochs")
      .at_least(0)
      .cadence(Counts::Epochs)
      .effect(Effect::Nothing)
      .flag("pictures_every_n_epochs");
  t.add("max_samples", &O::max_samples,
        "Samples of each set whose embeddings are kept, always the same ones; all when there are fewer.")
      .range(2, 1e6);
  t.add("recall_at", &O::recall_at, "The k of recall@k.").at_least(1);
  t.add("cluster_metrics", &O::cluster_metrics, "Also NMI with k-means, the slowest of the metrics with many classes.");
  t.add("separation_on_validation", &O::separation_on_validation,
        "Every validation measures its embeddings (val_recall_at_1, ...), so that checkpoints may follow them.");
  t.add("tsne", &O::tsne, "Pictures show t-SNE beside the principal components.");
  t.add("picture_samples", &O::picture_samples, "Most points of a picture.").range(4, 20'000);
  t.add("perplexity", &O::perplexity, "Perplexity of t-SNE: about how many neighbours a point has.").range(1, 1000);
  t.add("save_embeddings", &O::save_embeddings, "Embeddings are saved with the pictures (embeddings/, safetensors).");
  t.add("projector", &O::projector, "Files for TensorBoard's projector are written with the pictures.");
  return t;
}

}  // namespace redline::models::embedding
