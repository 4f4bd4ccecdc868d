// TensorBoard event files: scalars, histograms, images and text, written by hand (linking protobuf would clash with
// LibTorch's). One file per process start, never appended to later: TensorBoard gives up on a file with a damaged
// record, but not on the next one. Threads: any thread may write. Making it throws
// DiskError; what cannot be written later waits (measure/kept_writes.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace redline::measure {

// What TensorBoard calls a histogram: counts between limits. Values that are not finite are left out and counted.
struct Histogram {
  double min = 0, max = 0, count = 0, sum = 0, sum_of_squares = 0;
  std::vector<double> limits, counts;  // counts[i] values lie in (limits[i-1], limits[i]]
  int64_t not_finite = 0;
};
Histogram make_histogram(std::span<const float> values);

class EventFile {
 public:
  // Makes the folder if needed. With resume_step >= 0 TensorBoard is told to forget points of earlier files after that
  // step.
  explicit EventFile(const std::filesystem::path& folder, int64_t resume_step = -1);
  ~EventFile();

  // All of a step in one record and one write.
  void scalars(int64_t step, const std::map<std::string, double>& values);
  void histogram(int64_t step, std::string_view tag, const Histogram& histogram);
  // `png` is a whole PNG file; anything else is our mistake (InternalError).
  void image(int64_t step, std::string_view tag, std::string_view png);
  void text(int64_t step, std::string_view tag, std::string_view markdown);
  void flush();  // tries again what waited
  const std::filesystem::path& path() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Exposed for tests: length, masked CRC32C of the length, data, masked CRC32C of the data.
std::string tfrecord(std::string_view data);

}  // namespace redline::measure
