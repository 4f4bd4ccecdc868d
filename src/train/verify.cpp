// See verify.h.
#include "train/verify.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/strings.h"
#include "measure/run_record.h"
#include "train/checkpoint/snapshot.h"
#include "train/files/safetensors.h"

namespace redline::train {
namespace {

namespace fs = std::filesystem;

void audit_tensors(const fs::path& path, VerifiedItem& item) {
  try {
    for (const auto& [name, tensor] : read_named_tensors(path)) {
      ++item.tensors;
      if (tensor.is_floating_point() && tensor.numel() > 0 &&
          !tensor.to(torch::kFloat32).isfinite().all().item<bool>()) {
        item.not_finite.push_back(path.filename().string() + ": " + name);
      }
    }
  } catch (const CheckpointError& error) {
    item.damage.push_back({path, 0, error.what()});
  }
}

VerifiedItem verify_one_generation(const fs::path& path) {
  VerifiedItem item;
  item.path = path;
  item.step = generation_step(path.lexically_normal().filename().string());
  VerifyReport report = verify_generation(path, VerifyDepth::Sha256);
  item.damage = std::move(report.damage);
  item.extra = std::move(report.extra);
  item.bytes = report.bytes_read;
  if (!item.whole()) return item;
  item.step = report.manifest->step;
  for (const char* name : {kModelFile, kOptimizerFile, kStateFile}) {
    if (report.manifest->find(name) == nullptr)
      item.damage.push_back({path / kManifestName, 0, std::string("it does not list ") + name});
  }
  if (!item.whole()) return item;
  audit_tensors(path / kModelFile, item);
  audit_tensors(path / kOptimizerFile, item);
  if (!nlohmann::json::accept(read_file(path / kStateFile)))
    item.damage.push_back({path / kStateFile, 0, "it is not JSON"});
  return item;
}

VerifiedItem verify_weights(const fs::path& path) {
  VerifiedItem item;
  item.path = path;
  item.bytes = fs::file_size(path);
  audit_tensors(path, item);
  return item;
}

}  // namespace

size_t VerifyResult::damaged() const {
  size_t count = 0;
  for (const VerifiedItem& item : items) count += !item.whole();
  return count;
}

VerifyResult verify_path(const fs::path& path) {
  VerifyResult result;
  std::error_code code;
  if (fs::is_regular_file(path, code)) {
    result.items.push_back(verify_weights(path));
    return result;
  }
  if (!fs::is_directory(path, code))
    throw CheckpointError("There is nothing at '" + printable(path.string()) + "'; check the path.");
  if (generation_step(path.lexically_normal().filename().string()) || fs::exists(path / kManifestName, code)) {
    result.items.push_back(verify_one_generation(path));
    return result;
  }
  fs::path directory = path;
  if (fs::is_directory(path / "checkpoints", code)) {
    directory = path / "checkpoints";
    const measure::RunRecord record = measure::read_run(path);
    result.record_warnings = record.warnings;
    result.recorded_steps = static_cast<int64_t>(record.steps.size());
  }
  for (const fs::path& generation : generation_paths(directory))
    result.items.push_back(verify_one_generation(generation));
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (!generation_step(name)) result.leftovers.push_back(name);
  }
  std::sort(result.leftovers.begin(), result.leftovers.end());
  if (result.items.empty())
    throw CheckpointError("There are no checkpoints in '" + printable(directory.string()) +
                          "'; give a run directory, a step-… directory or a .safetensors file.");
  return result;
}

}  // namespace redline::train
