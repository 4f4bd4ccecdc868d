// Embeddings as points on a page, coloured by class: principal components and t-SNE side by side.
#pragma once

#include <cstdint>
#include <string>

#include "models/convnext/embedding/embedding_set.h"
#include "models/convnext/embedding/pca.h"

namespace redline::models::embedding {

struct EmbeddingPicture {
  std::string title;    // "Validation embeddings, step 500"
  std::string caption;  // what was measured of them; may be empty
  std::vector<int64_t> labels;
  Projection components;  // [n, 2]
  torch::Tensor tsne;     // [n, 2]; undefined: not made
};

// Of at most `most` embeddings of the set (evenly spaced rows); a set of fewer than 4 has no t-SNE.
EmbeddingPicture make_picture(const EmbeddingSet& set, int64_t most, double perplexity, bool with_tsne);
std::string picture_svg(const EmbeddingPicture& picture);
std::string picture_png(const EmbeddingPicture& picture);

}  // namespace redline::models::embedding
