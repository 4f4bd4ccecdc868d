// Which samples each committed step used, as `samples.jsonl` in the run directory: the evidence for "every sample
// exactly once per epoch". Off unless wanted (REDLINE_SAMPLE_LOG=1, set by `redline chaos`): it grows with the data,
// not with the model. The loop calls flush() before each save, so that every row up to a checkpoint outlives a kill
// after it. After a resume steps are repeated; the later row wins, as in steps.bin.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "measure/kept_writes.h"

namespace redline::train {

bool sample_log_wanted();

class SampleLog {
 public:
  explicit SampleLog(const std::filesystem::path& run_directory);  // appends; throws DiskError
  ~SampleLog() { flush(); }
  SampleLog(const SampleLog&) = delete;
  SampleLog& operator=(const SampleLog&) = delete;

  // One committed optimiser step with the ids of all its micro-batches.
  void step(int64_t step, int64_t epoch, std::span<const int64_t> sample_ids);
  void flush();

 private:
  measure::KeptFile file_;
  std::string pending_ = "\n";  // ends the line that a kill may have torn
};

struct SampleRow {
  int64_t epoch = 0;
  std::vector<int64_t> sample_ids;
};
// By step; a torn last line is dropped. Empty when there is no log.
std::map<int64_t, SampleRow> read_sample_log(const std::filesystem::path& run_directory);

}  // namespace redline::train
