#include "train/run/predictions_parquet.h"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/arrow/writer.h>

#include "core/error.h"

namespace redline::train {

namespace {

template <class T>
T value_or_throw(arrow::Result<T> result, const std::filesystem::path& path) {
  if (!result.ok())
    throw DiskError(fmt::format("{} could not be written: {}.", path.string(), result.status().message()));
  return std::move(result).ValueUnsafe();
}
void check_status(const arrow::Status& status, const std::filesystem::path& path) {
  if (!status.ok()) throw DiskError(fmt::format("{} could not be written: {}.", path.string(), status.message()));
}

template <class Builder, class T>
std::shared_ptr<arrow::Array> flat_array(const torch::Tensor& values, const std::filesystem::path& path) {
  Builder builder;
  check_status(builder.AppendValues(values.const_data_ptr<T>(), values.numel()), path);
  return value_or_throw(builder.Finish(), path);
}

std::shared_ptr<arrow::Array> column(const torch::Tensor& tensor, const std::filesystem::path& path) {
  const bool floats = tensor.is_floating_point();
  const torch::Tensor flat = tensor.to(floats ? torch::kFloat32 : torch::kInt64).contiguous().view(-1);
  const auto values = floats ? flat_array<arrow::FloatBuilder, float>(flat, path)
                             : flat_array<arrow::Int64Builder, int64_t>(flat, path);
  if (tensor.dim() == 1) return values;
  const int64_t width = tensor.size(0) > 0 ? tensor.numel() / tensor.size(0) : 0;
  return value_or_throw(arrow::FixedSizeListArray::FromArrays(values, static_cast<int32_t>(width)), path);
}

}  // namespace

void write_predictions_parquet(const Predictions& predictions, const std::filesystem::path& path) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> columns;
  auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  const auto add = [&](const std::string& name, const torch::Tensor& tensor) {
    columns.push_back(column(tensor, path));
    fields.push_back(arrow::field(name, columns.back()->type()));
    metadata->Append(name + "_shape", fmt::format("{}", fmt::join(tensor.sizes().slice(1), ",")));
  };
  add("sample_id", torch::tensor(predictions.sample_ids, torch::kInt64));
  for (const auto& [name, tensor] : predictions.outputs) add(name, tensor);
  const auto table = arrow::Table::Make(arrow::schema(fields, metadata), columns);
  const std::filesystem::path temporary = path.string() + ".tmp";
  {
    const auto file = value_or_throw(arrow::io::FileOutputStream::Open(temporary.string()), path);
    check_status(parquet::arrow::WriteTable(*table, arrow::default_memory_pool(), file), path);
    check_status(file->Close(), path);
  }
  std::error_code error;
  std::filesystem::rename(temporary, path, error);
  if (error)
    throw DiskError(
        fmt::format("{} could not be renamed to {}: {}.", temporary.string(), path.string(), error.message()));
}

}  // namespace redline::train
