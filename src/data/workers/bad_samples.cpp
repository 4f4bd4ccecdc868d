#include "data/workers/bad_samples.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/log.h"
#include "core/strings.h"

namespace redline::data {

namespace {
constexpr int64_t kJudgeAfter = 1000;  // delivered rows before their bad fraction says anything
constexpr int kNamedInLog = 10;

// Reasons come from many decoders and transforms, with and without a full stop.
std::string as_sentence(std::string reason) {
  if (!reason.empty() && reason.back() != '.') reason += '.';
  return reason;
}
}  // namespace

BadSampleLog::BadSampleLog(std::filesystem::path file, int64_t num_samples, BadSampleLimits limits, int rank)
    : file_(std::move(file)), num_samples_(num_samples), limits_(limits), rank_(rank) {
  if (file_.empty()) return;
  std::ifstream lines(file_);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.contains("sample") && json["sample"].is_number_integer())
      known_.insert(json["sample"].get<int64_t>());
  }
}

void BadSampleLog::write(const BadEvent& event, int64_t epoch, int64_t step) {
  if (file_.empty()) return;
  nlohmann::ordered_json json;
  json["sample"] = event.sample;
  json["name"] = event.name;
  json["reason"] = event.reason;
  json["epoch"] = epoch;
  json["step"] = step;
  if (rank_ != 0) json["rank"] = rank_;
  const std::string line = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  // Opened for each line: a run without bad samples has no such file.
  kept_->put(static_cast<int64_t>(line.size()),
             [file = file_, line] { measure::AppendFile(file, "bad_samples.write").append(line); });
}

void BadSampleLog::check(const BadEvent& event) const {
  const std::string where = file_.empty() ? std::string() : "; all are in " + file_.string();
  const std::string last = " The last one: " + event.name + ": " + as_sentence(event.reason);
  if (in_a_row_ >= limits_.max_in_a_row) {
    throw DataError(std::to_string(in_a_row_) + " samples in a row could not be used" + where + "." + last);
  }
  // One bad sample of a small set is not a broken set, unless none at all is allowed.
  const double most =
      std::max(limits_.max_fraction * static_cast<double>(num_samples_), limits_.max_fraction > 0.0 ? 1.0 : 0.0);
  if (static_cast<double>(num_distinct()) > most) {
    throw DataError(std::to_string(num_distinct()) + " of " + std::to_string(num_samples_) +
                    " samples could not be used: more than max_bad_fraction " + format_double(limits_.max_fraction) +
                    where + "." + last);
  }
  if (delivered_ >= kJudgeAfter &&
      static_cast<double>(num_bad_) > limits_.max_fraction * static_cast<double>(delivered_)) {
    throw DataError(std::to_string(num_bad_) + " of the first " + std::to_string(delivered_) +
                    " samples could not be used: more than max_bad_fraction " + format_double(limits_.max_fraction) +
                    where + "." + last);
  }
}

void BadSampleLog::row(const std::vector<BadEvent>& bad, int64_t epoch, int64_t step) {
  for (const BadEvent& event : bad) {
    ++num_bad_;
    ++in_a_row_;
    if (known_.insert(event.sample).second) {
      write(event, epoch, step);
      if (++named_ <= kNamedInLog) {
        log_warning("Bad sample " + event.name + ": " + as_sentence(event.reason) + " A substitute takes its place.");
      } else if (named_ == kNamedInLog + 1) {
        log_warning("More bad samples are counted" + (file_.empty() ? "." : " and named in " + file_.string() + "."));
      }
    }
    check(event);
  }
  ++delivered_;
  // A substitute that is good does not end a row of bad ones: only a planned sample that could be read does.
  if (bad.empty()) in_a_row_ = 0;
}

}  // namespace redline::data
