// The files a job's training data lies in, and how to make the next read of them come from the disk.
#pragma once

#include <filesystem>
#include <vector>

#include "data/dataset_config.h"

namespace redline::tune {

// Named files and what lies in named folders and beside manifests; at most `most`.
std::vector<std::filesystem::path> data_files(const data::DatasetConfig& config, size_t most = 50'000);
// Asks the kernel to forget their pages; returns how many files it took. What a page of which is mapped stays.
size_t drop_from_page_cache(const std::vector<std::filesystem::path>& files);

}  // namespace redline::tune
