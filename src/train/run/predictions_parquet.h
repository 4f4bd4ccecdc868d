// Predictions as a Parquet table: one row per sample, one column per output; tensors become lists in row-major order,
// with a
// "<name>_shape" entry in the file's metadata.
#pragma once

#include <filesystem>

#include "train/evaluate.h"

namespace redline::train {
void write_predictions_parquet(const Predictions& predictions, const std::filesystem::path& path);
}  // namespace redline::train
