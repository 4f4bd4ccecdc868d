// Files that TensorBoard's projector opens: for each step a folder with the vectors and their labels as tables, and
// projector_config.pbtxt that lists all of them. Tables of text and not bytes, because TensorBoard tries text first and
// takes some bytes for it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/convnext/embedding/embedding_set.h"

namespace redline::models::embedding {

// Into `log_folder` (where the event files are): NNNNN/TAG/tensors.tsv and metadata.tsv. Throws DiskError.
void write_projector(const std::filesystem::path& log_folder, int64_t step, const std::string& tag,
                     const EmbeddingSet& set);

// "embeddings", "labels" and "ids" as a safetensors file. Throws DiskError.
void save_embeddings(const std::filesystem::path& file, const EmbeddingSet& set);

}  // namespace redline::models::embedding
