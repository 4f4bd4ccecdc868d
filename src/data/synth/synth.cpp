#include "data/synth.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/error.h"
#include "core/file_ops.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/own_folder.h"
#include "core/run_threads.h"
#include "core/strings.h"
#include "core/time.h"
#include "data/synth/synth_parts.h"

namespace redline::data {

namespace {

namespace fs = std::filesystem;

constexpr char kFactsFile[] = "synth.json";

// Everything that shapes the output; threads do not.
std::string identity(const SynthConfig& c) {
  const std::string numbers[] = {std::to_string(synth::maker_of(c).version),
                                 c.kind,
                                 c.format,
                                 std::to_string(c.num),
                                 std::to_string(c.num_validation),
                                 std::to_string(c.seed),
                                 std::to_string(c.sample_rate),
                                 format_double(c.median_seconds),
                                 format_double(c.sigma),
                                 format_double(c.min_seconds),
                                 format_double(c.max_seconds),
                                 std::to_string(c.num_noise),
                                 format_double(c.median_length),
                                 format_double(c.length_sigma),
                                 std::to_string(c.min_length),
                                 std::to_string(c.max_length),
                                 std::to_string(c.vocab_size),
                                 std::to_string(c.rows_per_file),
                                 std::to_string(c.rows_per_group),
                                 std::to_string(c.num_classes),
                                 std::to_string(c.width),
                                 std::to_string(c.height),
                                 std::to_string(c.quality),
                                 std::to_string(c.index ? 1 : 0)};
  std::string text = join(numbers, "|");
  if (c.kind == "nuscenes") text += "|" + std::to_string(c.camera_width) + "x" + std::to_string(c.camera_height);
  return text;
}

void write_facts(const SynthResult& result, const fs::path& folder) {
  const auto below = [&](const fs::path& path) {
    return path.empty() ? std::string() : path.lexically_relative(folder).string();
  };
  const nlohmann::json facts = {{"train", below(result.train)},
                                {"validation", below(result.validation)},
                                {"noise", below(result.noise)},
                                {"num_items", result.num_items},
                                {"num_bytes", result.num_bytes}};
  write_file_atomic(folder / kFactsFile, facts.dump(1) + "\n");
}

bool read_facts(const fs::path& folder, SynthResult& result) {
  std::error_code code;
  if (!fs::is_regular_file(folder / kFactsFile, code)) return false;
  const auto facts = nlohmann::json::parse(read_file(folder / kFactsFile), nullptr, false);
  if (facts.is_discarded()) return false;
  const auto path = [&](const char* key) {
    return facts.value(key, "").empty() ? fs::path() : folder / facts.value(key, "");
  };
  result = {path("train"), path("validation"), path("noise"), facts.value("num_items", int64_t{0}),
            facts.value("num_bytes", uint64_t{0})};
  return fs::exists(result.train, code);
}

}  // namespace

namespace synth {

double log_normal(KeyedStream& draw, double median, double sigma, double min, double max) {
  return std::clamp(median * std::exp(sigma * draw.normal()), min, max);
}

void for_each_item(int64_t count, int num_threads, const std::function<void(int64_t)>& make) {
  std::atomic<int64_t> next = 0;
  const int wanted = num_threads > 0 ? num_threads : static_cast<int>(std::thread::hardware_concurrency());
  run_threads(static_cast<int>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(count, 1))), [&] {
    try {
      for (int64_t item = next++; item < count; item = next++) make(item);
    } catch (...) {
      next = count;
      throw;
    }
  });
}

void write_item(const fs::path& path, std::string_view bytes) {
  const auto fail = [&] {
    throw DiskError("'" + path.string() +
                    "' cannot be written: " + std::error_code(errno, std::generic_category()).message() + ".");
  };
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) fail();
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  if (std::fclose(file) != 0 || !written) fail();
}

std::string item_name(int64_t item) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%03lld/%06lld", static_cast<long long>(item / 1000),
                static_cast<long long>(item));
  return text.data();
}

void make_item_folders(const fs::path& folder, int64_t count) {
  posix_file_ops().make_directory(folder);
  for (int64_t first = 0; first < count; first += 1000)
    posix_file_ops().make_directory((folder / item_name(first)).parent_path());
}

}  // namespace synth

namespace {

constexpr char kDraft[] = ".draft-";

// Held while one process generates; a file system without locks is no reason to fail.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& path) {
    posix_file_ops().make_directory(path.parent_path());
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    while (file_ >= 0 && ::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (file_ >= 0) ::close(file_);
  }

 private:
  int file_ = -1;
};

void require_free(const fs::path& out) {
  std::error_code code;
  for (fs::directory_iterator it(out, code), end; !code && it != end; it.increment(code)) {
    if (it->path().filename() == kOwnMark || fs::exists(out / kFactsFile)) continue;
    throw ConfigError("'" + printable(out.string()) +
                      "' holds files that were not generated; choose another folder, or one that is empty.");
  }
}

// A folder of the right name without readable facts: ours is removed, anything else only moved out of the way.
void put_aside_broken(const fs::path& folder) {
  std::error_code code;
  if (!fs::exists(folder, code)) return;
  try {
    remove_own_folder(folder);
  } catch (const DiskError&) {
    const fs::path kept = folder.string() + ".broken-" + std::to_string(::getpid());
    fs::rename(folder, kept, code);
    if (code) throw DiskError("'" + folder.string() + "' is broken and cannot be moved: " + code.message() + ".");
    log_warning("'" + folder.string() + "' is not generated data; it is kept as '" + kept.string() + "'.");
  }
}

}  // namespace

SynthResult synthesize(const SynthConfig& config, const fs::path& out) {
  config.check();
  SynthConfig full = config;
  if (full.num_validation < 0) full.num_validation = std::max<int64_t>(1, full.num / 10);
  if (full.num_noise < 0) full.num_noise = std::max<int64_t>(1, full.num / 10);
  require_free(out);
  posix_file_ops().make_directory(out);
  const SynthResult result = synth::maker_of(full).make(full, out);
  write_facts(result, out);
  return result;
}

SynthResult synthesize_cached(const SynthConfig& config, const fs::path& cache_root) {
  config.check();
  const fs::path folder = cache_root / (config.kind + "-" + hex64(hash64(identity(config))));
  SynthResult result;
  if (read_facts(folder, result)) return result;
  // Jobs that start together wait here for the one that generates.
  const FolderLock lock(folder.string() + ".lock");
  if (read_facts(folder, result)) return result;
  put_aside_broken(folder);
  remove_abandoned_folders(cache_root, folder.filename().string() + kDraft);
  // With the time: in containers many processes have the same number, and one that died may have left this name.
  OwnFolder draft =
      OwnFolder::create(folder.string() + kDraft + std::to_string(::getpid()) + "-" + std::to_string(now_ns()));
  synthesize(config, draft.path());
  draft.publish(folder);  // false: another process was faster where locks do not work, and its data is the same
  if (!read_facts(folder, result))
    throw DiskError("The data generated in '" + folder.string() + "' cannot be read back.");
  return result;
}

}  // namespace redline::data
