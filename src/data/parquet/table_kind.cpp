#include <algorithm>

#include "core/error.h"
#include "core/strings.h"
#include "data/files/open_parts.h"
#include "data/kinds.h"
#include "data/parquet/parquet_source.h"

namespace redline::data {

namespace {

std::shared_ptr<Source> open_parquet(const DatasetConfig& config, const std::string& path) {
  ParquetOptions options;
  options.path = path;
  options.columns = config.columns;
  options.length_column = config.length_column;
  options.max_buffer_bytes = static_cast<uint64_t>(config.max_buffer_bytes);
  return std::make_shared<ParquetSource>(options);
}

class TableKind : public StoredKind {
 public:
  explicit TableKind(std::string column = {}) : column_(std::move(column)) {}
  std::string name() const override { return "parquet"; }
  std::string synth_name() const override { return "sequences"; }

  CollateSpec collate(const DatasetConfig&, const Source& source) const override {
    CollateSpec spec;
    const auto* parquet = dynamic_cast<const ParquetSource*>(&source);
    if (parquet == nullptr) return spec;
    for (const auto& column : parquet->columns()) {
      spec.fields.push_back({column.name, 0.0, 1, column.is_list ? column.name + "_len" : "", false});
      if (column.is_list && spec.counted_field.empty()) spec.counted_field = column.name;
    }
    return spec;
  }

 protected:
  void refuse_foreign_keys(const DatasetConfig& config) const override {
    refuse_audio_keys(config);
    const auto& read = config.columns;
    if (!column_.empty() && !read.empty() && std::find(read.begin(), read.end(), column_) == read.end())
      throw ConfigError("columns is [" + join(read, ", ") + "], but the model reads column '" + column_ +
                        "': set model.column to the one that holds the sequences, and leave columns out.");
  }

  OpenedData open_files(const DatasetConfig& config) const override {
    std::vector<std::shared_ptr<Source>> parts;
    for (const auto& names : parts_of(config.path, "path", config.is_concat)) {
      std::vector<std::shared_ptr<Source>> joined;
      for (const auto& name : names) joined.push_back(open_parquet(config, name));
      parts.push_back(join_parts(std::move(joined)).source);
    }
    return join_parts(std::move(parts));
  }

 private:
  std::string column_;
};

}  // namespace

std::shared_ptr<const Kind> table_kind(const std::string& column) { return std::make_shared<const TableKind>(column); }

}  // namespace redline::data
