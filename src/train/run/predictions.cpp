#include "train/run/predictions.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "train/files/safetensors.h"

namespace redline::train {

namespace {

// Rows of one batch appended to what came before; batches whose other dimensions differ are padded with 0 to the
// larger.
torch::Tensor append_rows(const torch::Tensor& all, torch::Tensor more) {
  if (!all.defined()) return more;
  if (all.dim() != more.dim())
    throw DataError("An output of predict() has another number of dimensions in another batch.");
  torch::Tensor before = all;
  for (int64_t dim = 1; dim < all.dim(); ++dim) {
    const int64_t width = std::max(before.size(dim), more.size(dim));
    for (torch::Tensor* tensor : {&before, &more}) {
      std::vector<int64_t> padding(static_cast<size_t>(2 * (tensor->dim() - dim)), 0);
      padding.back() = width - tensor->size(dim);
      if (padding.back() > 0) *tensor = torch::constant_pad_nd(*tensor, padding);
    }
  }
  return torch::cat({before, more});
}

// The mean of each sample's own part over its length.
torch::Tensor mean_over_length(const torch::Tensor& padded, const torch::Tensor& lengths, int64_t dim) {
  const torch::Tensor x = padded.to(torch::kFloat32).movedim(dim, 1);
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[0] = x.size(0);
  shape[1] = x.size(1);
  const torch::Tensor inside =
      (torch::arange(x.size(1)).unsqueeze(0) < lengths.to(torch::kInt64).unsqueeze(1)).view(shape);
  std::vector<int64_t> counts(static_cast<size_t>(x.dim() - 1), 1);
  counts[0] = x.size(0);
  return torch::where(inside, x, torch::zeros({}, x.options())).sum(1) /
         lengths.to(torch::kFloat32).clamp_min(1.0).view(counts);
}

// The one output that is a vector of numbers for each sample.
std::string the_vector(const Predictions& predictions) {
  std::vector<std::string> vectors, all;
  for (const auto& [name, tensor] : predictions.outputs) {
    all.push_back(name);
    if (tensor.dim() == 2 && tensor.is_floating_point() && predictions.ragged.count(name) == 0) vectors.push_back(name);
  }
  for (const char* known : {"embedding", "mu"})
    if (std::find(vectors.begin(), vectors.end(), known) != vectors.end()) return known;
  if (vectors.size() == 1) return vectors[0];
  throw ConfigError(fmt::format("A .npy file holds one output, and there are several; say which with --output: {}.",
                                join(vectors.empty() ? all : vectors, ", ")));
}

}  // namespace

void PredictionRows::add(const std::vector<int64_t>& sample_ids, const std::vector<std::string>& names,
                         const std::map<std::string, torch::Tensor>& outputs) {
  const auto rows = static_cast<int64_t>(sample_ids.size());
  for (const auto& [name, tensor] : outputs) {
    const torch::Tensor host = tensor.detach().to(torch::kCPU).contiguous();
    if (host.dim() == 0 || host.size(0) != rows) continue;
    torch::Tensor& all = rows_.outputs[name];
    const bool first = !all.defined();
    all = append_rows(all, host);
    const auto lengths = outputs.find(name + "_lengths");
    if (lengths == outputs.end() || lengths->second.dim() != 1 || rows == 0) continue;
    const auto longest = lengths->second.max().item<int64_t>();
    std::vector<int64_t> fit;
    for (int64_t dim = 1; dim < host.dim(); ++dim)
      if (host.size(dim) >= longest &&
          (first || std::find(candidates_[name].begin(), candidates_[name].end(), dim) != candidates_[name].end()))
        fit.push_back(dim);
    // Padding may go beyond the longest; a dimension that is exactly as long is likelier than one that is wider.
    std::vector<int64_t> exact;
    for (const int64_t dim : fit)
      if (host.size(dim) == longest) exact.push_back(dim);
    candidates_[name] = exact.empty() ? fit : exact;
  }
  rows_.sample_ids.insert(rows_.sample_ids.end(), sample_ids.begin(), sample_ids.end());
  rows_.names.insert(rows_.names.end(), names.begin(), names.end());
}

Predictions PredictionRows::finish() {
  std::map<std::string, torch::Tensor> means;
  for (const auto& [name, dims] : candidates_) {
    if (dims.empty()) continue;
    rows_.ragged[name] = dims.back();
    const torch::Tensor& padded = rows_.outputs.at(name);
    if (padded.is_floating_point())
      means[name + "_mean"] = mean_over_length(padded, rows_.outputs.at(name + "_lengths"), dims.back());
  }
  rows_.outputs.merge(means);
  return std::move(rows_);
}

torch::Tensor own_rows(const Predictions& predictions, const std::string& name, int64_t sample) {
  const torch::Tensor row = predictions.outputs.at(name)[sample];
  const auto ragged = predictions.ragged.find(name);
  if (ragged == predictions.ragged.end()) return row;
  const int64_t dim = ragged->second - 1;
  const auto length = predictions.outputs.at(name + "_lengths")[sample].item<int64_t>();
  return row.narrow(dim, 0, std::clamp<int64_t>(length, 0, row.size(dim)));
}

void check_predictions_path(const std::filesystem::path& path) {
  for (const char* known : {".parquet", ".safetensors", ".npy"})
    if (path.extension() == known) return;
  throw ConfigError(
      fmt::format("--out is '{}'; it must end in .parquet, .safetensors or .npy.", printable(path.string())));
}

void write_npy(const std::filesystem::path& path, const torch::Tensor& tensor) {
  const bool floats = tensor.is_floating_point();
  const torch::Tensor values = tensor.to(floats ? torch::kFloat32 : torch::kInt64).contiguous();
  std::string shape;
  for (const int64_t size : values.sizes()) shape += std::to_string(size) + ", ";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", floats ? "<f4" : "<i8", shape);
  // The data begins at a multiple of 64 bytes; magic, version and length take ten.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xFF);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  bytes.append(static_cast<const char*>(values.const_data_ptr()), static_cast<size_t>(values.nbytes()));
  write_file_atomic(path, bytes);
}

void write_predictions(const Predictions& predictions, const std::filesystem::path& path, const std::string& output) {
  check_predictions_path(path);
  if (!output.empty() && predictions.outputs.count(output) == 0) {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : predictions.outputs) all.push_back(name);
    throw ConfigError(fmt::format("There is no output '{}'; this task gives {}.", printable(output), join(all, ", ")));
  }
  if (path.extension() == ".npy") {
    write_npy(path, predictions.outputs.at(output.empty() ? the_vector(predictions) : output));
    write_file_atomic(std::filesystem::path(path).replace_extension(".names.txt"),
                      join(predictions.names, "\n") + "\n");
    return;
  }
  Predictions chosen = predictions;
  if (!output.empty())
    std::erase_if(chosen.outputs,
                  [&](const auto& item) { return item.first != output && item.first != output + "_lengths"; });
  if (path.extension() == ".parquet") {
    write_predictions_parquet(chosen, path);
    return;
  }
  NamedTensors tensors;
  tensors.emplace_back("sample_ids", torch::tensor(chosen.sample_ids, torch::kInt64));
  for (const auto& [name, tensor] : chosen.outputs) tensors.emplace_back(name, tensor.contiguous());
  write_safetensors_atomic(
      path, tensors,
      {{"names", nlohmann::json(chosen.names).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}});
}

}  // namespace redline::train
