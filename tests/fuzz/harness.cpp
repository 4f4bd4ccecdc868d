// libFuzzer's entry points, for all targets in one program: `fuzz_readers --target=wav -runs=100000 DIRECTORY`. Further
// words of ours: --list (the targets), --seeds=DIRECTORY (writes the target's seeds and ends), --planted (a bug behind
// every reader, the control). tests/fuzz/run is the comfortable way.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "core/log.h"
#include "target.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);
extern "C" const char* __asan_default_options();

// A small quarantine, or freed memory would count against the limit on resident memory (-rss_limit_mb in run). Short
// stacks of allocations: readers allocate much, and walking the stack for each took a tenth of the time.
extern "C" const char* __asan_default_options() {
  return "quarantine_size_mb=16:detect_leaks=1:allocator_may_return_null=0:malloc_context_size=6";
}

namespace redline::fuzz {

std::string fixture(const std::string& path) {
  std::ifstream file(std::string(REDLINE_FIXTURES) + "/" + path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  require(!text.empty(), "the fixture is there");
  return text;
}

std::string memory_folder() {
  const char* base = std::getenv("REDLINE_FUZZ_SCRATCH");
  std::string pattern = std::string(base != nullptr ? base : "/dev/shm") + "/redline-fuzz-XXXXXX";
  require(::mkdtemp(pattern.data()) != nullptr, "a folder in memory can be made");
  return pattern;
}

MemoryFile::MemoryFile(std::string_view bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  require(fd_ >= 0 && ::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()),
          "a file in memory can be made");
}
MemoryFile::~MemoryFile() { ::close(fd_); }

namespace {

Target chosen;
std::set<std::string> chosen_seeds;
bool planted = false;

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& make : {
#if defined(REDLINE_FUZZ_WITH_TORCH)
         job_targets
#else
           audio_targets, image_targets, tar_targets, parquet_targets, text_targets, nuscenes_targets,
           record_targets, stored_targets, config_targets
#endif
       }) {
    for (auto& target : make()) all.push_back(std::move(target));
  }
  return all;
}

// What a careless last step would do with a file that was accepted: read one byte too far, for one accepted file in
// sixteen. No seed triggers it, so the mutations must get through the whole reader.
void planted_bug(const uint8_t* data, size_t size) {
  if (chosen_seeds.contains(std::string(reinterpret_cast<const char*>(data), size))) return;
  unsigned sum = 0;
  for (size_t i = 0; i < size; ++i) sum = 31 * sum + data[i];
  if (sum % 16 != 3) return;
  volatile uint8_t beyond = data[size];
  (void)beyond;
}

void write_seeds(const std::string& directory) {
  int number = 0;
  for (const auto& seed : chosen_seeds)
    std::ofstream(directory + "/seed-" + std::to_string(number++), std::ios::binary) << seed;
}

// The value of --NAME=VALUE among the words.
std::string word_value(int argc, char** argv, const std::string& name) {
  for (int i = 1; i < argc; ++i)
    if (const std::string word = argv[i]; word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return "";
}

}  // namespace

}  // namespace redline::fuzz

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  using namespace redline::fuzz;
  redline::set_log_level(redline::LogLevel::Error);
  const auto targets = all_targets();
  const std::vector<std::string> words(*argv + 1, *argv + *argc);
  if (std::find(words.begin(), words.end(), "--list") != words.end()) {
    for (const auto& target : targets) std::printf("%s\n", target.name.c_str());
    std::exit(0);
  }
  planted = std::find(words.begin(), words.end(), "--planted") != words.end();
  const std::string name = word_value(*argc, *argv, "--target");
  for (const auto& target : targets)
    if (target.name == name) chosen = target;
  if (chosen.name.empty()) {
    std::fprintf(stderr, "There is no target '%s'; --list shows them.\n", name.c_str());
    std::exit(2);
  }
  for (auto& seed : chosen.seeds()) {
    // In memory of its own, exactly as long as the file.
    const std::vector<std::byte> exact(std::as_bytes(std::span(seed)).begin(), std::as_bytes(std::span(seed)).end());
    require(chosen.run(exact), "an undamaged seed is accepted");
    chosen_seeds.insert(std::move(seed));
  }
  if (const std::string directory = word_value(*argc, *argv, "--seeds"); !directory.empty()) {
    write_seeds(directory);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace redline::fuzz;
  if (chosen.run(std::as_bytes(std::span(data, size))) && planted) planted_bug(data, size);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  using namespace redline::fuzz;
  // One in eight starts at a seed again: the corpus fills with what is refused early, and most of the code is behind
  // that.
  if (seed % 8 == 1) {
    const std::string& fresh = *std::next(chosen_seeds.begin(), static_cast<ptrdiff_t>(seed / 8 % chosen_seeds.size()));
    if (fresh.size() <= max_size) {
      std::memcpy(data, fresh.data(), fresh.size());
      size = fresh.size();
    }
  }
  size = LLVMFuzzerMutate(data, size, max_size);
  if (!chosen.repair || seed / 8 % 10 >= 7) return size;  // some stay broken: checksums are code too
  std::string bytes(reinterpret_cast<const char*>(data), size);
  chosen.repair(bytes);
  if (bytes.size() > max_size) return size;
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
