// All separation metrics of embeddings in a safetensors file ("embeddings", "labels"), once; the figures as a JSON
// line. For bench/workloads/separation.py, where scikit-learn measures the same file.
#include <sys/resource.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/time.h"
#include "device/startup_memory.h"
#include "models/convnext/embedding/separation.h"
#include "train/files/safetensors.h"

using namespace redline;

namespace {

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

int measure(const std::string& file) {
  auto tensors = train::read_safetensors(file).tensors;
  models::embedding::EmbeddingSet set;
  set.vectors = tensors.at("embeddings");
  const torch::Tensor& labels = tensors.at("labels");
  set.labels.assign(labels.const_data_ptr<int64_t>(), labels.const_data_ptr<int64_t>() + labels.numel());
  const int64_t before = peak_bytes(), begin = now_ns();
  const models::embedding::Separation found = models::embedding::measure_separation(set);
  nlohmann::json out = found.metrics();
  out["seconds"] = seconds_between(begin, now_ns());
  out["peak_rss_bytes"] = peak_bytes();
  out["grown_bytes"] = peak_bytes() - before;
  std::cout << out.dump() << "\n";
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  device::release_startup_memory();  // as redline does
  if (argc != 2) {
    std::cerr << "usage: separation_bench FILE.safetensors\n";
    return 2;
  }
  try {
    return measure(argv[1]);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
