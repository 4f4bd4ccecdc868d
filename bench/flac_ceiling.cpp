// What the machine can decode at most: threads pinned to one core each turn FLAC files that are already in memory into
// float32 and throw the result away. No reading, no order, no batches. flac_ceiling MANIFEST THREADS SECONDS; the last
// line on stdout is JSON.
#include <sched.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/file_ops.h"
#include "core/time.h"
#include "data/audio/manifest.h"
#include "data/codecs/audio.h"

using namespace redline;

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: flac_ceiling MANIFEST THREADS SECONDS\n", stderr);
    return 2;
  }
  const std::filesystem::path name = argv[1];
  const int threads = std::atoi(argv[2]);
  const double seconds = std::atof(argv[3]);
  const data::Manifest manifest = data::Manifest::read(name);
  std::vector<std::string> files;
  for (size_t i = 0; i < manifest.size(); ++i)
    files.push_back(read_file(name.parent_path() / std::string(manifest.file(i))));

  std::atomic<int64_t> decoded = 0;
  std::atomic<bool> failed = false;
  const int64_t begin = now_ns(), cpu_begin = process_cpu_ns();
  const auto decode = [&](int thread) {
    cpu_set_t core;
    CPU_ZERO(&core);
    CPU_SET(thread, &core);
    sched_setaffinity(0, sizeof(core), &core);
    for (size_t at = static_cast<size_t>(thread); seconds_between(begin, now_ns()) < seconds;
         at = (at + static_cast<size_t>(threads)) % files.size()) {
      const auto result = data::decode_audio(std::as_bytes(std::span(files[at])), "clip", {});
      if (std::holds_alternative<data::BadSample>(result)) failed = true;
      ++decoded;
    }
  };
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) workers.emplace_back(decode, t);
  for (auto& worker : workers) worker.join();
  if (failed) {
    std::fputs("error: a clip could not be decoded\n", stderr);
    return 1;
  }
  const double samples = static_cast<double>(decoded);
  std::printf("{\"samples_per_second\": %.3f, \"cpu_seconds_per_1000_samples\": %.5f}\n",
              samples / seconds_between(begin, now_ns()),
              static_cast<double>(process_cpu_ns() - cpu_begin) * 1e-6 / samples);
  return 0;
}
