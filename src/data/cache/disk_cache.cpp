// The cache on disk. Shards are append-only lists of [header, payload]; an index in memory says where each key lies,
// rebuilt from the headers at start. Writes are not synced: a cache may lose its tail in a crash, and the checksum of
// every record finds that out.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "core/error.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/cache/feature_cache.h"

namespace redline::data {

namespace {

constexpr uint32_t kRecordMagic = 0x31434c52;  // "RLC1"
struct RecordHeader {
  uint32_t magic = kRecordMagic;
  uint32_t checksum = 0;  // of key, size and payload
  uint64_t key = 0;
  uint64_t payload_bytes = 0;
};
static_assert(sizeof(RecordHeader) == 24);

uint32_t record_checksum(const RecordHeader& header, std::string_view payload) {
  const uint32_t head = crc32c(std::as_bytes(std::span(&header.key, 2)));
  return crc32c(std::as_bytes(std::span(payload)), head);
}

bool read_fully(int fd, uint64_t offset, void* out, size_t bytes) {
  auto* at = static_cast<char*>(out);
  while (bytes > 0) {
    const ssize_t got = ::pread(fd, at, bytes, static_cast<off_t>(offset));
    if (got <= 0) return false;
    at += got, offset += static_cast<uint64_t>(got), bytes -= static_cast<size_t>(got);
  }
  return true;
}

class Shard {
 public:
  // Returns the bytes in use. Cuts a torn tail when `writable`.
  int64_t open(const std::filesystem::path& path, bool writable) {
    fd_ = ::open(path.c_str(), (writable ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0) {
      if (!writable && errno == ENOENT) return 0;
      throw DiskError("Cannot open the feature cache " + path.string() + ": " + std::strerror(errno) + ".");
    }
    struct stat status {};
    const uint64_t size = ::fstat(fd_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
    RecordHeader header;
    while (end_ + sizeof(header) <= size && read_fully(fd_, end_, &header, sizeof(header)) &&
           header.magic == kRecordMagic && header.payload_bytes <= size - end_ - sizeof(header)) {
      where_[header.key] = {end_, header.payload_bytes};
      end_ += sizeof(header) + header.payload_bytes;
    }
    if (writable && end_ < size && ::ftruncate(fd_, static_cast<off_t>(end_)) != 0) where_.clear();
    return static_cast<int64_t>(end_);
  }
  ~Shard() {
    if (fd_ >= 0) ::close(fd_);
  }

  std::optional<Sample> find(uint64_t key) {
    Place place;
    {
      const std::lock_guard lock(mutex_);
      const auto found = where_.find(key);
      if (found == where_.end()) return std::nullopt;
      place = found->second;
    }
    RecordHeader header;
    std::string payload(place.payload_bytes, '\0');
    if (read_fully(fd_, place.offset, &header, sizeof(header)) && header.key == key &&
        header.payload_bytes == place.payload_bytes &&
        read_fully(fd_, place.offset + sizeof(header), payload.data(), payload.size()) &&
        header.checksum == record_checksum(header, payload)) {
      if (auto sample = deserialize_sample(payload)) return sample;
    }
    log_warning_once("The feature cache has damaged records; they are made again.");
    const std::lock_guard lock(mutex_);
    where_.erase(key);
    return std::nullopt;
  }

  // Returns the bytes added.
  int64_t insert(uint64_t key, const std::string& payload) {
    RecordHeader header;
    header.key = key;
    header.payload_bytes = payload.size();
    header.checksum = record_checksum(header, payload);
    std::string record(reinterpret_cast<const char*>(&header), sizeof(header));
    record += payload;
    const std::lock_guard lock(mutex_);
    if (where_.count(key) != 0) return 0;
    if (::pwrite(fd_, record.data(), record.size(), static_cast<off_t>(end_)) != static_cast<ssize_t>(record.size())) {
      log_warning_once(std::string("The feature cache cannot be written (") + std::strerror(errno) +
                       "); training goes on without new entries.");
      return 0;
    }
    where_[key] = {end_, header.payload_bytes};
    end_ += record.size();
    return static_cast<int64_t>(record.size());
  }

 private:
  struct Place {
    uint64_t offset = 0, payload_bytes = 0;
  };
  int fd_ = -1;
  uint64_t end_ = 0;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Place> where_;
};

class DiskCache : public FeatureCache {
 public:
  DiskCache(const std::filesystem::path& directory, int64_t limit_bytes) : limit_bytes_(limit_bytes) {
    std::error_code failed;
    std::filesystem::create_directories(directory, failed);
    if (failed)
      throw DiskError("Cannot make the folder of the feature cache " + directory.string() + ": " + failed.message() +
                      ".");
    lock_fd_ = ::open((directory / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    writable_ = lock_fd_ >= 0 && ::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0;
    for (size_t i = 0; i < shards_.size(); ++i) {
      bytes_ += shards_[i].open(directory / ("shard_" + std::to_string(i) + ".rlc"), writable_);
    }
  }
  ~DiskCache() override {
    if (lock_fd_ >= 0) ::close(lock_fd_);
  }

  std::optional<Sample> find(uint64_t key) override {
    auto sample = shards_[key % shards_.size()].find(key);
    count(sample.has_value());
    return sample;
  }

  void insert(uint64_t key, const Sample& sample) override {
    if (!writable_ || bytes_.load(std::memory_order_relaxed) >= limit_bytes_) return;
    bytes_.fetch_add(shards_[key % shards_.size()].insert(key, serialize_sample(sample)), std::memory_order_relaxed);
  }

  int64_t num_bytes() const override { return bytes_.load(std::memory_order_relaxed); }

 private:
  int64_t limit_bytes_;
  int lock_fd_ = -1;
  bool writable_ = false;
  std::atomic<int64_t> bytes_{0};
  std::array<Shard, 16> shards_;
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <class T>
bool get(std::string_view& in, T& value) {
  if (in.size() < sizeof(value)) return false;
  std::memcpy(&value, in.data(), sizeof(value));
  in.remove_prefix(sizeof(value));
  return true;
}

std::optional<Array> get_array(std::string_view& in) {
  uint8_t dtype = 0, dims = 0;
  if (!get(in, dtype) || !get(in, dims) || dtype > static_cast<uint8_t>(Dtype::Bool) || dims > 8) return std::nullopt;
  Shape shape(dims);
  uint64_t bytes = dtype_size(static_cast<Dtype>(dtype));
  for (int64_t& extent : shape) {
    if (!get(in, extent) || extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes))
      return std::nullopt;
  }
  if (bytes > in.size()) return std::nullopt;
  Array array = Array::empty(static_cast<Dtype>(dtype), std::move(shape));
  if (bytes > 0) std::memcpy(array.data(), in.data(), bytes);
  in.remove_prefix(bytes);
  return array;
}

}  // namespace

std::string serialize_sample(const Sample& sample) {
  std::string out;
  put(out, static_cast<uint32_t>(sample.fields.size()));
  for (const auto& [name, array] : sample.fields) {
    put(out, static_cast<uint32_t>(name.size()));
    out += name;
    put(out, static_cast<uint8_t>(array.dtype()));
    put(out, static_cast<uint8_t>(array.shape().size()));
    for (int64_t extent : array.shape()) put(out, extent);
    out.append(static_cast<const char*>(array.data()), array.num_bytes());
  }
  return out;
}

std::optional<Sample> deserialize_sample(std::string_view bytes) {
  Sample sample;
  uint32_t fields = 0;
  if (!get(bytes, fields)) return std::nullopt;
  for (uint32_t f = 0; f < fields; ++f) {
    uint32_t name_bytes = 0;
    if (!get(bytes, name_bytes) || name_bytes > bytes.size()) return std::nullopt;
    std::string name(bytes.substr(0, name_bytes));
    bytes.remove_prefix(name_bytes);
    auto array = get_array(bytes);
    if (!array) return std::nullopt;
    sample.fields.emplace_back(std::move(name), std::move(*array));
  }
  return bytes.empty() ? std::optional(std::move(sample)) : std::nullopt;
}

std::unique_ptr<FeatureCache> make_disk_cache(const std::filesystem::path& directory, uint64_t settings,
                                              int64_t limit_bytes) {
  return std::make_unique<DiskCache>(directory / hex64(settings), limit_bytes);
}

}  // namespace redline::data
