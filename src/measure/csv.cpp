// Names come from the metric table ([a-z0-9_/]), so no cell needs quotes.
#include "measure/csv.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/strings.h"
#include "measure/kept_writes.h"

namespace redline::measure {
namespace {

std::string cell(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return format_double(value);
}

}  // namespace

struct CsvFile::Impl {
  std::filesystem::path path;
  std::vector<std::string> columns = {"step"};
  std::unique_ptr<AppendFile> file;
  int64_t last_step = INT64_MIN;

  void rewrite(const std::vector<std::string>& new_columns, const std::vector<std::string>& rows) {
    std::string text = join(new_columns, ",") + "\n";
    for (const std::string& row : rows) text += row + "\n";
    file.reset();
    write_file_atomic(path, text);
    open();
  }

  // A rewrite that failed may have replaced the file or not: what its first line says is true.
  void open() {
    if (file) return;
    const std::string text = read_file(path);
    columns = split(text.substr(0, text.find('\n')), ',');
    file = std::make_unique<AppendFile>(path, "csv.write");
    file->truncate(static_cast<int64_t>(text.rfind('\n') + 1));  // a torn row that could not be cut off before
  }

  // Whole lines after the first; a torn last one is left out.
  std::vector<std::string> rows_of_file() const {
    std::vector<std::string> lines = split(read_file(path), '\n');
    if (!lines.empty()) lines.pop_back();
    if (!lines.empty()) lines.erase(lines.begin());
    return lines;
  }

  void continue_file(int64_t resume_step) {
    const std::string text = read_file(path);
    const size_t newline = text.find('\n');
    if (newline == std::string::npos) return rewrite(columns, {});
    columns = split(text.substr(0, newline), ',');
    if (columns.empty() || columns[0] != "step") {
      throw DataError("'" + printable(path.string()) +
                      "' does not begin with the column 'step'; move it away or choose another --run-dir.");
    }
    std::vector<std::string> kept;
    for (std::string& row : rows_of_file()) {
      const auto step = parse_int(row.substr(0, row.find(',')));
      if (!step || *step > resume_step) continue;
      last_step = std::max(last_step, *step);
      kept.push_back(std::move(row));
    }
    rewrite(columns, kept);
  }

  void add_columns(const std::map<std::string, double>& values) {
    std::vector<std::string> wider = columns;
    for (const auto& [name, value] : values) {
      if (std::find(wider.begin(), wider.end(), name) == wider.end()) wider.push_back(name);
    }
    if (wider.size() == columns.size()) return;
    std::vector<std::string> rows = rows_of_file();
    for (std::string& row : rows) row.append(wider.size() - columns.size(), ',');
    rewrite(wider, rows);
  }

  void write(int64_t step, const std::map<std::string, double>& values) {
    open();
    add_columns(values);
    std::string line = std::to_string(step);
    for (size_t i = 1; i < columns.size(); ++i) {
      const auto value = values.find(columns[i]);
      line += ',';
      if (value != values.end()) line += cell(value->second);
    }
    file->append(line + "\n");
  }

  KeptWrites waiting;  // after the file, which it writes to
};

CsvFile::CsvFile(const std::filesystem::path& path, int64_t resume_step) : impl_(std::make_unique<Impl>()) {
  impl_->path = path;
  if (resume_step >= 0 && std::filesystem::exists(path)) {
    impl_->continue_file(resume_step);
  } else {
    impl_->rewrite(impl_->columns, {});
  }
}

CsvFile::~CsvFile() = default;

void CsvFile::row(int64_t step, const std::map<std::string, double>& values) {
  if (values.empty()) return;
  // A step may have several rows: what was logged, what validation and what a monitor found.
  REDLINE_CHECK(step >= impl_->last_step, "the rows of a CSV file are in the order of steps");
  impl_->last_step = step;
  constexpr int64_t kBytesPerValue = 64;  // about what a kept row holds
  impl_->waiting.put(static_cast<int64_t>(values.size()) * kBytesPerValue,
                     [impl = impl_.get(), step, values] { impl->write(step, values); });
}

void CsvFile::flush() { impl_->waiting.retry(); }

}  // namespace redline::measure
