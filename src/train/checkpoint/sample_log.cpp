// See sample_log.h. A line is "[step,epoch,id,id,...]": JSON that any tool reads, cheap to write.
#include "train/checkpoint/sample_log.h"

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/file_ops.h"
#include "core/strings.h"

namespace redline::train {
namespace {

constexpr const char* kSampleLogName = "samples.jsonl";
constexpr size_t kSampleLogBuffer = size_t{1} << 16;

}  // namespace

bool sample_log_wanted() {
  const char* value = std::getenv("REDLINE_SAMPLE_LOG");
  return value != nullptr && std::string_view(value) == "1";
}

SampleLog::SampleLog(const std::filesystem::path& run_directory)
    : file_(run_directory / kSampleLogName, "sample_log.write") {}

void SampleLog::step(int64_t step, int64_t epoch, std::span<const int64_t> sample_ids) {
  pending_ += '[';
  pending_ += std::to_string(step);
  pending_ += ',';
  pending_ += std::to_string(epoch);
  for (int64_t id : sample_ids) pending_ += ',', pending_ += std::to_string(id);
  pending_ += "]\n";
  if (pending_.size() >= kSampleLogBuffer) flush();
}

void SampleLog::flush() {
  if (!pending_.empty()) file_.append(std::exchange(pending_, {}));
  file_.retry();
}

std::map<int64_t, SampleRow> read_sample_log(const std::filesystem::path& run_directory) {
  std::map<int64_t, SampleRow> rows;
  std::error_code code;
  if (!std::filesystem::exists(run_directory / kSampleLogName, code)) return rows;
  for (const std::string& line : split(read_file(run_directory / kSampleLogName), '\n')) {
    const auto values = nlohmann::json::parse(line, nullptr, false);
    if (!values.is_array() || values.size() < 2)
      continue;  // empty, or torn by a kill: that step is repeated further down
    SampleRow row;
    row.epoch = values[1].get<int64_t>();
    for (size_t i = 2; i < values.size(); ++i) row.sample_ids.push_back(values[i].get<int64_t>());
    rows[values[0].get<int64_t>()] = std::move(row);
  }
  return rows;
}

}  // namespace redline::train
