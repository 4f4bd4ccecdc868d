// A row per sample: its name and id, then a column per output. Vectors are lists of one width; what has lengths is a
// list of the sample's own numbers in row-major order with its shape in "<name>_shape", so that nothing is padding.

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <parquet/arrow/writer.h>

#include "core/error.h"
#include "core/strings.h"
#include "train/run/predictions.h"

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

std::shared_ptr<arrow::Array> text_column(const std::vector<std::string>& texts, const std::filesystem::path& path) {
  arrow::StringBuilder builder;
  for (const std::string& text : texts) check_status(builder.Append(printable(text)), path);
  return value_or_throw(builder.Finish(), path);
}

// Lists of different lengths, from each sample's own numbers.
std::shared_ptr<arrow::Array> lists(const std::vector<torch::Tensor>& rows, const std::filesystem::path& path) {
  const bool floats = !rows.empty() && rows[0].is_floating_point();
  std::vector<torch::Tensor> flat;
  arrow::Int32Builder offsets;
  int64_t end = 0;
  check_status(offsets.Append(0), path);
  for (const torch::Tensor& row : rows) {
    flat.push_back(row.to(floats ? torch::kFloat32 : torch::kInt64).contiguous().view(-1));
    end += flat.back().numel();
    if (end > INT32_MAX)
      throw DataError("The outputs have more than 2^31 numbers in one column; predict fewer samples at a time.");
    check_status(offsets.Append(static_cast<int32_t>(end)), path);
  }
  const torch::Tensor values = flat.empty() ? torch::empty({0}, torch::kInt64) : torch::cat(flat);
  const auto numbers = floats ? flat_array<arrow::FloatBuilder, float>(values, path)
                              : flat_array<arrow::Int64Builder, int64_t>(values, path);
  return value_or_throw(arrow::ListArray::FromArrays(*value_or_throw(offsets.Finish(), path), *numbers), path);
}

}  // namespace

void write_predictions_parquet(const Predictions& predictions, const std::filesystem::path& path) {
  std::vector<std::shared_ptr<arrow::Field>> fields;
  std::vector<std::shared_ptr<arrow::Array>> columns;
  auto metadata = std::make_shared<arrow::KeyValueMetadata>();
  const auto add = [&](const std::string& name, std::shared_ptr<arrow::Array> values) {
    columns.push_back(std::move(values));
    fields.push_back(arrow::field(name, columns.back()->type()));
  };
  add("name", text_column(predictions.names, path));
  add("sample_id", column(torch::tensor(predictions.sample_ids, torch::kInt64), path));
  for (const auto& [name, tensor] : predictions.outputs) {
    if (predictions.ragged.count(name) == 0 || tensor.size(0) == 0) {
      add(name, column(tensor, path));
      metadata->Append(name + "_shape", fmt::format("{}", fmt::join(tensor.sizes().slice(1), ",")));
      continue;
    }
    std::vector<torch::Tensor> rows, shapes;
    for (int64_t i = 0; i < tensor.size(0); ++i) {
      rows.push_back(own_rows(predictions, name, i));
      shapes.push_back(torch::tensor(rows.back().sizes().vec(), torch::kInt64));
    }
    add(name, lists(rows, path));
    add(name + "_shape", column(torch::stack(shapes), path));
  }
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
