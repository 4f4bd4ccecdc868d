// Reading, resolving and dumping a job of 400 keys; the bar of docs is 5 ms for all of it together ("whole").
// Fifty sections of eight rows stand for a real job's tables; a tenth of the values are references, flags or aliases.
#include <benchmark/benchmark.h>
#include <stdlib.h>

#include <filesystem>
#include <memory>

#include "config/testing/example_job.h"
#include "core/file_ops.h"

namespace {

using namespace redline::config;

struct WideJob {
  std::vector<std::unique_ptr<example::Loader>> loaders;
  Schema schema;
  WideJob() {
    for (int i = 0; i < 50; ++i) {
      loaders.push_back(std::make_unique<example::Loader>());
      schema.section("model.part_" + std::to_string(i), *loaders.back());
    }
  }
};

std::string wide_yaml() {
  std::string text = "# fifty data sets\nmodel:\n";
  for (int i = 0; i < 50; ++i) {
    text += "  part_" + std::to_string(i) + ":\n    manifest_filepath: [/data/train/manifest_" + std::to_string(i) +
            ".json]  # where\n    batch_size: 8\n    workers_per_gpu: auto\n    pin_memory: true\n    shuffle: false\n"
            "    max_duration: 16.7\n    max_sequence_length: 512\n    sample_rate: " +
            (i == 0 ? "16000" : "${model.part_0.sample_rate}") + "\n";
  }
  return text;
}

struct WideFile {
  std::filesystem::path folder;
  RequestSource source;
  WideFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "redline-bench-XXXXXX").string();
    folder = ::mkdtemp(pattern.data());
    source.file = folder / "wide.yaml";
    redline::write_file_atomic(*source.file, wide_yaml());
    for (int i = 0; i < 10; ++i)
      source.overrides.push_back("--model.part_" + std::to_string(i) + ".batch_size=" + std::to_string(i + 1));
  }
  ~WideFile() { std::filesystem::remove_all(folder); }
};

void tables(benchmark::State& state) {
  for ([[maybe_unused]] auto step : state) benchmark::DoNotOptimize(std::make_unique<WideJob>());
}
void yaml(benchmark::State& state) {
  const std::string text = wide_yaml();
  for ([[maybe_unused]] auto step : state) benchmark::DoNotOptimize(read_yaml_text(text, "wide.yaml"));
}
void request(benchmark::State& state) {
  const WideFile file;
  const WideJob job;
  for ([[maybe_unused]] auto step : state) benchmark::DoNotOptimize(read_request(file.source, job.schema));
}
void binding(benchmark::State& state) {
  const WideFile file;
  WideJob job;
  const Node tree = read_request(file.source, job.schema);
  for ([[maybe_unused]] auto step : state) benchmark::DoNotOptimize(bind(tree, job.schema));
}
void dumping(benchmark::State& state) {
  const WideFile file;
  WideJob job;
  const Resolved bound = bind(read_request(file.source, job.schema), job.schema);
  for ([[maybe_unused]] auto step : state) {
    const Resolved now = snapshot(job.schema, bound);
    benchmark::DoNotOptimize(now.dump_yaml());
    benchmark::DoNotOptimize(now.hash());
  }
}
// What a command does at start: tables, file, flags, binding, autos, dump, hash.
void whole(benchmark::State& state) {
  const WideFile file;
  for ([[maybe_unused]] auto step : state) {
    WideJob job;
    const Resolved bound = bind(read_request(file.source, job.schema), job.schema);
    for (auto& loader : job.loaders) {
      if (loader->num_workers.is_auto()) loader->num_workers.set(2);
    }
    const Resolved now = snapshot(job.schema, bound);
    benchmark::DoNotOptimize(now.dump_yaml());
    benchmark::DoNotOptimize(now.hash());
  }
}

}  // namespace

BENCHMARK(tables)->Unit(benchmark::kMillisecond);
BENCHMARK(yaml)->Unit(benchmark::kMillisecond);
BENCHMARK(request)->Unit(benchmark::kMillisecond);
BENCHMARK(binding)->Unit(benchmark::kMillisecond);
BENCHMARK(dumping)->Unit(benchmark::kMillisecond);
BENCHMARK(whole)->Unit(benchmark::kMillisecond);
BENCHMARK_MAIN();
