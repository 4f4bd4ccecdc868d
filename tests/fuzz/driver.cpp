// Runs mutated files through parsers, built with AddressSanitizer and UBSan. `fuzz_parsers` runs all targets,
// `fuzz_parsers wav png` those named; 10,000 files each, 100,000 with REDLINE_SLOW=1, another number with
// REDLINE_FUZZ_RUNS. A crash leaves its input in fuzz_crash.bin: `fuzz_parsers wav < fuzz_crash.bin` with
// REDLINE_FUZZ_STDIN=1 shows it again. With clang's libFuzzer: compile with -DREDLINE_FUZZ_TARGET='"wav"' and
// -fsanitize=fuzzer.
#include <sanitizer/common_interface_defs.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>

#include "core/log.h"
#include "mutate.h"
#include "target.h"

// One allocation above this is a parser that believed a header; the resident limit catches the sum.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=300:hard_rss_limit_mb=1500:detect_leaks=1:allocator_may_return_null=0:abort_on_error="
         "0";
}

namespace {

using redline::KeyedStream;
using redline::fuzz::Target;

constexpr int kMaxSecondsPerFile = 20;

std::vector<Target> all_targets() {
  std::vector<Target> all;
  for (const auto& make :
       {redline::fuzz::audio_targets, redline::fuzz::image_targets, redline::fuzz::tar_targets,
        redline::fuzz::parquet_targets, redline::fuzz::text_targets, redline::fuzz::planted_targets}) {
    for (auto& target : make()) all.push_back(std::move(target));
  }
  return all;
}

// Kept here so that whatever ends the program can write it out.
const std::string* current_input = nullptr;

void save_input() {
  if (current_input == nullptr) return;
  if (std::FILE* file = std::fopen("fuzz_crash.bin", "wb")) {
    std::fwrite(current_input->data(), 1, current_input->size(), file);
    std::fclose(file);
  }
}

void on_signal(int number) {
  std::fprintf(stderr, "%s\n", number == SIGALRM ? "a file took too long" : "aborted");
  save_input();
  _exit(1);
}

void run_target(const Target& target, int64_t runs) {
  const auto start = std::chrono::steady_clock::now();
  const auto seeds = target.seeds();
  int64_t accepted = 0;
  for (const auto& seed : seeds)
    redline::fuzz::require(target.run(std::as_bytes(std::span(seed))), "an undamaged seed is accepted");
  for (int64_t i = 0; i < runs; ++i) {
    KeyedStream draw(1, 0, static_cast<uint64_t>(i), std::hash<std::string>{}(target.name));
    std::string bytes = redline::fuzz::mutate(seeds, draw);
    if (target.repair && draw.uniform() < 0.7) target.repair(bytes);
    // Exactly as long as the file, so that one byte too far is one byte too far.
    const auto exact = std::make_unique<std::byte[]>(bytes.size());
    std::memcpy(exact.get(), bytes.data(), bytes.size());
    current_input = &bytes;
    alarm(kMaxSecondsPerFile);
    accepted += target.run({exact.get(), bytes.size()});
    alarm(0);
    current_input = nullptr;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf("%-16s %7lld files, %6lld accepted, %5.1f s, peak %ld MiB\n", target.name.c_str(),
              static_cast<long long>(runs), static_cast<long long>(accepted), seconds, usage.ru_maxrss / 1024);
  std::fflush(stdout);
}

int64_t number_of_runs() {
  if (const char* text = std::getenv("REDLINE_FUZZ_RUNS")) return std::atoll(text);
  const char* slow = std::getenv("REDLINE_SLOW");
  return slow != nullptr && std::strcmp(slow, "1") == 0 ? 100'000 : 10'000;
}

}  // namespace

#if defined(REDLINE_FUZZ_TARGET)

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto targets = all_targets();
  for (const auto& target : targets)
    if (target.name == REDLINE_FUZZ_TARGET) target.run(std::as_bytes(std::span(data, size)));
  return 0;
}

#else

int main(int argc, char** argv) {
  redline::set_log_level(redline::LogLevel::Error);
  __sanitizer_set_death_callback(save_input);
  std::signal(SIGALRM, on_signal);
  std::signal(SIGABRT, on_signal);
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  const bool from_stdin = std::getenv("REDLINE_FUZZ_STDIN") != nullptr;
  int found = 0;
  for (const auto& target : all_targets()) {
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), target.name) == wanted.end()) continue;
    ++found;
    if (from_stdin) {
      const std::string bytes((std::istreambuf_iterator<char>(std::cin)), std::istreambuf_iterator<char>());
      std::printf("%s\n", target.run(std::as_bytes(std::span(bytes))) ? "accepted" : "refused");
    } else {
      run_target(target, number_of_runs());
    }
  }
  if (found == 0) std::fprintf(stderr, "no such target\n");
  return found > 0 ? 0 : 2;
}

#endif
