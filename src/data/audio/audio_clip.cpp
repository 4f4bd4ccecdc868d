#include "data/audio/audio_clip.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/run_threads.h"

namespace redline::data {

std::string audio_fingerprint(const AudioRequest& request) {
  return "audio rate " + std::to_string(request.target_rate) + " channel " + std::to_string(request.channel) +
         (request.allow_resample ? "" : " strict");
}

std::vector<std::byte>& thread_bytes() {
  thread_local std::vector<std::byte> bytes;
  return bytes;
}

void count_bytes(measure::StageClock::Slot& slot, uint64_t bytes) {
  slot.bytes_read.store(slot.bytes_read.load(std::memory_order_relaxed) + static_cast<int64_t>(bytes),
                        std::memory_order_relaxed);
}

ReadResult decode_clip(const AudioInput& input, const std::string& name, AudioRequest clip,
                       measure::StageClock::Slot& slot) {
  const measure::StageScope scope(slot, measure::Stage::Decode);
  if (std::isnan(clip.duration_seconds)) clip.duration_seconds = 0.0;
  if (clip.duration_seconds > 0.0) clip.max_seconds = 0.0;
  AudioResult result = decode_audio(input, name, clip);
  if (auto* bad = std::get_if<BadSample>(&result)) return std::move(*bad);
  Sample sample;
  sample.set("audio", std::move(std::get<Audio>(result).samples));
  return sample;
}

double measure_clip(std::span<const std::byte> head, uint64_t file_bytes, double offset) {
  const AudioInfoResult probed = probe_audio(head, file_bytes, "");
  const auto* info = std::get_if<AudioInfo>(&probed);
  if (info == nullptr || info->frames < 0) return std::numeric_limits<double>::quiet_NaN();
  return std::max(0.0, info->seconds() - offset);
}

std::vector<double> measure_all(size_t count, const std::function<double(size_t)>& measure) {
  std::vector<double> values(count);
  std::atomic<size_t> next{0};
  const size_t wanted = std::min<size_t>({std::thread::hardware_concurrency(), 16, count / 64});
  run_threads(static_cast<int>(wanted), [&] {
    try {
      for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) values[i] = measure(i);
    } catch (...) {
      next = count;  // the others need not go on
      throw;
    }
  });
  return values;
}

namespace {
struct DurationsHeader {
  char magic[8] = {'R', 'L', 'D', 'U', 'R', '0', '0', '1'};
  uint64_t fingerprint = 0, count = 0;
  uint64_t checksum = 0;
};
}  // namespace

std::vector<double> load_durations(const std::filesystem::path& path, uint64_t fingerprint, size_t count) {
  std::error_code ignored;
  const uint64_t size = std::filesystem::is_regular_file(path, ignored) ? std::filesystem::file_size(path, ignored) : 0;
  DurationsHeader header, expected;
  if (size != sizeof(header) + count * sizeof(double)) return {};
  std::string bytes;
  try {
    bytes = read_file(path, size);
  } catch (const DiskError&) {
    return {};  // measured again
  }
  if (bytes.size() != size) return {};
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string_view payload = std::string_view(bytes).substr(sizeof(header));
  const bool fits = std::memcmp(header.magic, expected.magic, sizeof(header.magic)) == 0 &&
                    header.fingerprint == fingerprint && header.count == count && header.checksum == hash64(payload);
  if (!fits) return {};
  std::vector<double> durations(count);
  std::memcpy(durations.data(), payload.data(), payload.size());
  return durations;
}

void store_durations(const std::filesystem::path& path, uint64_t fingerprint, const std::vector<double>& durations) {
  const std::string_view payload(reinterpret_cast<const char*>(durations.data()), durations.size() * sizeof(double));
  DurationsHeader header;
  header.fingerprint = fingerprint;
  header.count = durations.size();
  header.checksum = hash64(payload);
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += payload;
  try {
    write_file_atomic(path, bytes);
  } catch (const DiskError&) {
    // A read-only data folder: the next start measures again.
  }
}

std::optional<DataFile> open_sample(const PathGuard& guard, std::string_view file, const std::string& name,
                                    BadSample& bad) {
  OpenResult opened = guard.open(file);
  if (auto* data_file = std::get_if<DataFile>(&opened)) return std::move(*data_file);
  const auto& failure = std::get<OpenFailure>(opened);
  if (failure.refused()) throw DataError(failure.reason);
  bad = {name, failure.reason};
  return std::nullopt;
}

}  // namespace redline::data
