// Field numbers from tensorflow/core/util/event.proto and framework/summary.proto, tensor.proto, histogram.proto; the
// record framing from tensorflow/core/lib/io/record_writer. Scalars are written as simple_value, images as Image: the
// forms every TensorBoard reads.
#include "measure/tfevents.h"

#include <fmt/format.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/hash.h"
#include "core/strings.h"
#include "measure/detail/protobuf.h"
#include "measure/kept_writes.h"

namespace redline::measure {
namespace {

uint32_t masked_crc(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes.data(), bytes.size())));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

template <class T>
void append_little(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

double wall_seconds() {
  timeval now{};
  gettimeofday(&now, nullptr);
  return static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_usec);
}

// Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7.
ProtoWriter new_event(int64_t step) {
  ProtoWriter event;
  event.fixed64(1, wall_seconds()).varint(2, static_cast<uint64_t>(step));
  return event;
}

// Bucket limits grow by a tenth from 1e-12 to 1e20 on both sides of 0, as TensorFlow's own histograms.
const std::vector<double>& default_limits() {
  static const std::vector<double> limits = [] {
    std::vector<double> positive;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) positive.push_back(limit);
    positive.push_back(DBL_MAX);
    std::vector<double> all;
    for (auto it = positive.rbegin(); it != positive.rend(); ++it) all.push_back(-*it);
    all.push_back(0);
    all.insert(all.end(), positive.begin(), positive.end());
    return all;
  }();
  return limits;
}

// A name that sorts after every event file in the folder: TensorBoard reads them in that order and never goes back.
std::filesystem::path next_event_path(const std::filesystem::path& folder) {
  auto seconds = static_cast<int64_t>(wall_seconds());
  constexpr std::string_view kPrefix = "events.out.tfevents.";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!starts_with(name, kPrefix)) continue;
    const auto earlier = parse_int(name.substr(kPrefix.size(), 10));
    if (earlier) seconds = std::max(seconds, *earlier + 1);
  }
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  return folder / fmt::format("{}{:010d}.{}.{}.0", kPrefix, seconds, host, ::getpid());
}

}  // namespace

std::string tfrecord(std::string_view data) {
  std::string record;
  append_little(record, static_cast<uint64_t>(data.size()));
  append_little(record, masked_crc(record));
  record.append(data);
  append_little(record, masked_crc(data));
  return record;
}

Histogram make_histogram(std::span<const float> values) {
  const std::vector<double>& limits = default_limits();
  std::vector<double> counts(limits.size(), 0);
  Histogram histogram;
  for (float value : values) {
    if (!std::isfinite(value)) {
      ++histogram.not_finite;
      continue;
    }
    const double v = value;
    histogram.min = histogram.count == 0 ? v : std::min(histogram.min, v);
    histogram.max = histogram.count == 0 ? v : std::max(histogram.max, v);
    histogram.count += 1;
    histogram.sum += v;
    histogram.sum_of_squares += v * v;
    counts[static_cast<size_t>(std::lower_bound(limits.begin(), limits.end(), v) - limits.begin())] += 1;
  }
  // Only buckets between the first and last that hold something, with an empty one before them as the lower edge.
  size_t first = 0, last = counts.size();
  while (first < last && counts[first] == 0) ++first;
  while (last > first && counts[last - 1] == 0) --last;
  if (first > 0 && first < last) --first;
  histogram.limits.assign(limits.begin() + static_cast<ptrdiff_t>(first),
                          limits.begin() + static_cast<ptrdiff_t>(last));
  histogram.counts.assign(counts.begin() + static_cast<ptrdiff_t>(first),
                          counts.begin() + static_cast<ptrdiff_t>(last));
  return histogram;
}

struct EventFile::Impl {
  KeptFile file;

  explicit Impl(const std::filesystem::path& path) : file(path, "tfevents.write") {}
  void write(const ProtoWriter& event) { file.append(tfrecord(event.data())); }
  // Summary: value = 1; Summary.Value: tag = 1, then the field of its kind.
  void write_value(int64_t step, const ProtoWriter& value) {
    ProtoWriter event = new_event(step);
    event.bytes(5, ProtoWriter().bytes(1, value.data()).data());
    write(event);
  }
};

EventFile::EventFile(const std::filesystem::path& folder, int64_t resume_step) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_disk_error("Creating the folder", folder, error.value());
  impl_ = std::make_unique<Impl>(next_event_path(folder));
  ProtoWriter version;
  version.fixed64(1, wall_seconds()).bytes(3, "brain.Event:2");
  impl_->file.file().append(tfrecord(version.data()));
  if (resume_step >= 0) {
    constexpr uint64_t kStart = 1;  // SessionLog.status: TensorBoard drops what it has from this step on
    ProtoWriter event = new_event(resume_step + 1);
    event.bytes(7, ProtoWriter().varint(1, kStart).data());
    impl_->write(event);
  }
}

EventFile::~EventFile() = default;
const std::filesystem::path& EventFile::path() const { return impl_->file.file().path(); }
void EventFile::flush() { impl_->file.retry(); }

void EventFile::scalars(int64_t step, const std::map<std::string, double>& values) {
  ProtoWriter summary;
  for (const auto& [tag, value] : values)
    summary.bytes(1, ProtoWriter().bytes(1, tag).fixed32(2, static_cast<float>(value)).data());
  ProtoWriter event = new_event(step);
  event.bytes(5, summary.data());
  impl_->write(event);
}

void EventFile::histogram(int64_t step, std::string_view tag, const Histogram& histogram) {
  ProtoWriter proto;
  proto.fixed64(1, histogram.min).fixed64(2, histogram.max).fixed64(3, histogram.count);
  proto.fixed64(4, histogram.sum).fixed64(5, histogram.sum_of_squares);
  proto.packed(6, histogram.limits).packed(7, histogram.counts);
  impl_->write_value(step, ProtoWriter().bytes(1, tag).bytes(5, proto.data()));
}

void EventFile::image(int64_t step, std::string_view tag, std::string_view png) {
  constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";
  REDLINE_CHECK(png.size() >= 33 && png.starts_with(kSignature), "an image is given as a whole PNG file");
  // IHDR follows the signature: length (4), "IHDR" (4), width (4), height (4), depth, colour type; big-endian.
  const auto big = [&](size_t at) {
    uint64_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(png[at + i]);
    return value;
  };
  static constexpr uint64_t kChannels[] = {1, 0, 3, 3,
                                           2, 0, 4};  // by colour type: grey, -, RGB, palette, grey+alpha, -, RGBA
  const auto colour = static_cast<unsigned char>(png[25]);
  ProtoWriter proto;
  proto.varint(1, big(20))
      .varint(2, big(16))
      .varint(3, colour < std::size(kChannels) ? kChannels[colour] : 0)
      .bytes(4, png);
  impl_->write_value(step, ProtoWriter().bytes(1, tag).bytes(4, proto.data()));
}

void EventFile::text(int64_t step, std::string_view tag, std::string_view markdown) {
  constexpr uint64_t kDtString = 7;
  // TensorProto: dtype = 1, tensor_shape = 2 {dim = 2 {size = 1}}, string_val = 8. Metadata: plugin_data = 1
  // {plugin_name = 1}.
  const ProtoWriter shape = ProtoWriter().bytes(2, ProtoWriter().varint(1, 1).data());
  const ProtoWriter tensor = ProtoWriter().varint(1, kDtString).bytes(2, shape.data()).bytes(8, markdown);
  const ProtoWriter metadata = ProtoWriter().bytes(1, ProtoWriter().bytes(1, "text").data());
  impl_->write_value(step, ProtoWriter().bytes(1, tag).bytes(8, tensor.data()).bytes(9, metadata.data()));
}

}  // namespace redline::measure
