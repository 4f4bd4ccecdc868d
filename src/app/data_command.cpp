// redline data order|stats|bench|index|tar|synth: looks at, measures and prepares training data without training.
// CONFIG is a job, or a file that holds only the keys of a data set: then the kind is told by --kind or by the names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "app/command.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/build_loader.h"
#include "data/loader_bench.h"
#include "data/plan_stats.h"
#include "data/shard_writer.h"
#include "data/synth.h"
#include "data/tar_index.h"
#include "device/machine.h"
#include "models/register.h"
#include "train/job/job.h"

namespace redline::app {

void add_data_command(CLI::App& program, const Globals& globals);

namespace {

using Json = nlohmann::ordered_json;

struct DataJob {
  data::DatasetConfig dataset;
  data::TaskNeeds needs;
};

struct DataArguments {
  ConfigArguments config;
  std::string kind;  // of a file that is only a data set
  bool validation = false;
};

void add_data_arguments(CLI::App& command, DataArguments& arguments) {
  add_config_arguments(command, arguments.config);
  command.add_option("--kind", arguments.kind,
                     "Kind of data when CONFIG holds only a data set: audio, parquet or images");
  command.add_flag("--validation", arguments.validation, "The validation data of the job instead of the training data");
}

bool is_whole_job(const config::RequestSource& source) {
  if (!source.file) return true;
  const config::Node file = config::read_yaml_file(*source.file);
  return file.find("model") != nullptr || file.find("task") != nullptr || file.find("base") != nullptr;
}

// What a data set's names say about its kind.
std::string guess_kind(const data::DatasetConfig& dataset) {
  if (dataset.synth)
    return dataset.synth->kind == "speech" ? "audio" : dataset.synth->kind == "sequences" ? "parquet" : "images";
  if (!dataset.manifest_filepath.is_null()) return "audio";
  const auto lists = data::name_lists(dataset.path, "path");
  const std::string first = lists.empty() || lists[0].empty() ? "" : lists[0][0];
  if (ends_with(first, ".tar")) return "audio";
  if (ends_with(first, ".parquet")) return "parquet";
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(first, ignored)) {
    if (entry.path().extension() == ".parquet") return "parquet";
  }
  return "images";
}

DataJob read_bare_data_set(const DataArguments& arguments, const config::RequestSource& source) {
  DataJob job;
  config::Schema schema;
  schema.section("", data::DatasetConfig::training_fields().component(), &job.dataset);
  config::bind(config::read_request(source, schema), schema);
  job.dataset.resolve(device::read_machine_facts(), 0);
  job.needs.source_kind = arguments.kind.empty() ? guess_kind(job.dataset) : arguments.kind;
  return job;
}

DataJob read_data_job(const DataArguments& arguments, const CLI::App& command) {
  const config::RequestSource source = arguments.config.source(command);
  if (!is_whole_job(source)) return read_bare_data_set(arguments, source);
  task::Registry registry;
  models::register_all(registry);
  train::JobOptions options;
  options.measure_rates = false;
  const auto job = train::Job::read(registry, source, device::read_machine_facts(), options);
  const auto task = job->build_task();
  DataJob result;
  result.dataset = arguments.validation ? job->validation_ds() : job->train_ds();
  if (!result.dataset.given())
    throw ConfigError("The job names no data there: give model.train_ds or model.validation_ds.");
  result.needs.source_kind = task->source_kind();
  result.needs.training = !arguments.validation;
  result.needs.collate = task->collate();
  result.needs.sample_transform = task->sample_transform();
  result.needs.group_transform = task->group_transform();
  result.needs.batch_statistics = task->batch_statistics();
  result.needs.accumulate = arguments.validation ? 1 : job->trainer().accumulate_grad_batches;
  return result;
}

// --- order ---

struct OrderArguments {
  DataArguments from;
  int64_t epoch = 0, skip = 0, limit = -1;
  int ranks = 1, rank = 0;
};

void run_order(const OrderArguments& arguments, const CLI::App& command, const Globals& globals) {
  DataJob job = read_data_job(arguments.from, command);
  if (arguments.rank < 0 || arguments.rank >= arguments.ranks)
    throw ConfigError("--rank must be between 0 and --ranks minus 1.");
  if (arguments.epoch < 0 || arguments.skip < 0) throw ConfigError("--epoch and --skip count from 0.");
  job.needs.rank = arguments.rank;
  job.needs.world = arguments.ranks;
  const data::OpenedData opened = data::open_data(job.dataset, job.needs);
  const auto planner = data::make_planner(job.dataset, job.needs, opened);
  const auto plan = planner->epoch(arguments.epoch);
  const data::CollateSpec collate = job.needs.collate.fields.empty()
                                        ? data::default_collate(job.dataset, job.needs, *opened.source)
                                        : job.needs.collate;
  const data::SplitSettings split = data::split_settings(job.dataset, job.needs, planner->settings(), collate);
  const auto length = [&](int64_t sample) {
    return std::min(opened.source->length(sample), planner->settings().cut_length);
  };
  const int64_t steps = plan->num_steps(), begin = std::min(arguments.skip, steps);
  const int64_t end = arguments.limit < 0 ? steps : std::min(steps, begin + arguments.limit);
  uint64_t order_hash = 0;
  if (globals.json) {
    fmt::print(
        "{{\"schema_version\": 1, \"epoch\": {}, \"steps\": {}, \"plan_hash\": \"{}\", \"ranks\": {}, \"rank\": {}, "
        "\"batches\": [",
        arguments.epoch, steps, hex64(planner->hash()), arguments.ranks, arguments.rank);
  }
  bool first = true;
  for (int64_t step = begin; step < end; ++step) {
    const data::StepSplit shape = data::split_step(*plan, step, split, length);
    for (size_t m = 0; m < shape.num_micro_batches(); ++m) {
      std::vector<int64_t> ids;
      for (uint32_t r = shape.micro_begin[m]; r < shape.micro_begin[m + 1]; ++r)
        ids.push_back(plan->sample(shape.entries[shape.rows[r]]));
      order_hash = hash64(std::as_bytes(std::span(ids)), order_hash);
      if (globals.json) {
        fmt::print("{}\n{{\"step\": {}, \"micro_batch\": {}, \"samples\": [{}]}}", first ? "" : ",", step, m,
                   fmt::join(ids, ", "));
      } else {
        fmt::print("{} {}: {}\n", step, m, fmt::join(ids, " "));
      }
      first = false;
    }
  }
  if (globals.json) {
    fmt::print("\n], \"order_hash\": \"{}\"}}\n", hex64(order_hash));
  } else {
    fmt::print("plan {} order {} ({} of {} steps)\n", hex64(planner->hash()), hex64(order_hash), end - begin, steps);
  }
}

// --- stats ---

struct StatsArguments {
  DataArguments from;
  int buckets = 8;
  std::vector<int64_t> batch_sizes{1, 2, 4, 8, 16, 32, 64};
};

Json stats_json(const data::LengthStats& stats, const data::FilterReport& filtered, const std::string& unit,
                const std::vector<data::PaddingRow>& rows, int buckets) {
  Json json;
  json["schema_version"] = 1;
  json["unit"] = unit;
  json["samples"] = stats.count;
  json["unknown_lengths"] = stats.unknown;
  json["lengths"] = {{"total", stats.total}, {"min", stats.min}, {"p5", stats.p5},   {"median", stats.median},
                     {"mean", stats.mean},   {"p95", stats.p95}, {"p99", stats.p99}, {"max", stats.max}};
  json["filtered"] = {{"kept", filtered.kept}, {"too_short", filtered.too_short}, {"too_long", filtered.too_long}};
  json["num_buckets"] = buckets;
  json["padding"] = Json::array();
  for (const auto& row : rows) {
    json["padding"].push_back(
        {{"batch_size", row.batch_size}, {"share", row.plain}, {"share_with_buckets", row.bucketed}});
  }
  return json;
}

void run_stats(const StatsArguments& arguments, const CLI::App& command, const Globals& globals) {
  const DataJob job = read_data_job(arguments.from, command);
  const data::OpenedData opened = data::open_data(job.dataset, job.needs);
  const auto planner = data::make_planner(job.dataset, job.needs, opened);
  const auto source = opened.source;
  const data::PlanSource plan{
      source->size(), [source](int64_t i) { return source->length(i); }, {}, source->fingerprint()};
  data::PlanSettings base = planner->settings();
  base.window_locality_groups = base.window_samples = 0;
  const data::LengthStats stats = data::length_stats(source->size(), plan.length);
  const auto rows = data::padding_table(base, plan, arguments.batch_sizes, std::max(2, arguments.buckets));
  const std::string unit = source->length_unit();
  if (globals.json) {
    fmt::print("{}\n", stats_json(stats, planner->filtered(), unit, rows, arguments.buckets).dump(1));
    return;
  }
  fmt::print("{} samples, {} {} in all; kept {}, too short {}, too long {}\n", stats.count, format_double(stats.total),
             unit, planner->filtered().kept, planner->filtered().too_short, planner->filtered().too_long);
  fmt::print("length in {}: min {:.4g}, 5 % {:.4g}, median {:.4g}, mean {:.4g}, 95 % {:.4g}, 99 % {:.4g}, max {:.4g}\n",
             unit, stats.min, stats.p5, stats.median, stats.mean, stats.p95, stats.p99, stats.max);
  fmt::print("padding of a batch:\n  batch   plain   {} buckets\n", arguments.buckets);
  for (const auto& row : rows)
    fmt::print("  {:>5}  {:>5.1f} %  {:>7.1f} %\n", row.batch_size, 100 * row.plain, 100 * row.bucketed);
}

// --- bench ---

struct BenchArguments {
  DataArguments from;
  int workers = -1;
  data::LoaderBenchOptions options;
};

void run_bench(const BenchArguments& arguments, const CLI::App& command, const Globals& globals) {
  DataJob job = read_data_job(arguments.from, command);
  if (arguments.workers >= 0) job.dataset.num_workers = arguments.workers;
  const data::LoaderBenchResult result =
      data::bench_loader([&] { return data::build_loader(job.dataset, job.needs); }, arguments.options);
  const double seconds = std::max(result.seconds, 1e-9),
               samples = static_cast<double>(std::max<int64_t>(1, result.samples));
  const double padding = result.padded_items > 0
                             ? 1.0 - static_cast<double>(result.items) / static_cast<double>(result.padded_items)
                             : 0.0;
  Json json;
  json["schema_version"] = 1;
  json["workers"] = job.dataset.num_workers.value();
  json["samples"] = result.samples;
  json["batches"] = result.batches;
  json["seconds"] = result.seconds;
  json["samples_per_second"] = samples / seconds;
  if (job.needs.source_kind == "audio") {
    json["audio_seconds_per_second"] = static_cast<double>(result.items) / job.dataset.sample_rate / seconds;
  }
  json["cpu_seconds_per_1000_samples"] = 1000.0 * result.cpu_seconds / samples;
  json["peak_memory_bytes"] = result.peak_rss_bytes;
  json["pss_bytes"] = result.pss_bytes;
  json["first_batch_seconds"] = result.first_batch_seconds;
  json["wait_p50_seconds"] = result.wait_p50_seconds;
  json["wait_p99_seconds"] = result.wait_p99_seconds;
  json["padding_share"] = padding;
  for (size_t stage = 0; stage < measure::kNumStages; ++stage) {
    json["stage_seconds"][std::string(measure::stage_name(static_cast<measure::Stage>(stage)))] =
        static_cast<double>(result.stages.ns[stage]) * 1e-9;
  }
  json["bad_samples"] = result.bad_samples;
  json["order_hash"] = hex64(result.order_hash);
  json["order_batches"] = result.order_batches;
  if (globals.json) {
    fmt::print("{}\n", json.dump());
    return;
  }
  fmt::print("{:.0f} samples/s with {} workers ({} batches in {}), first batch after {}, waits p50 {} p99 {}\n",
             samples / seconds, job.dataset.num_workers.value(), result.batches, format_seconds(result.seconds),
             format_seconds(result.first_batch_seconds), format_seconds(result.wait_p50_seconds),
             format_seconds(result.wait_p99_seconds));
  fmt::print("padding {:.1f} %, {:.3g} CPU-seconds per 1,000 samples, peak memory {}, order {}\n", 100 * padding,
             1000.0 * result.cpu_seconds / samples, format_bytes(result.peak_rss_bytes), hex64(result.order_hash));
}

// --- index, tar, synth ---

void run_index(const std::vector<std::string>& tars, const Globals& globals) {
  Json json;
  json["schema_version"] = 1;
  json["tars"] = Json::array();
  for (const std::string& name : tars) {
    const data::DataFile file = data::open_user_file(name);
    const data::TarIndex index = data::TarIndex::load(file, name);
    const size_t samples = data::group_by_stem(index).size();
    json["tars"].push_back(
        {{"tar", name}, {"members", index.size()}, {"samples", samples}, {"fingerprint", hex64(index.fingerprint())}});
    if (!globals.json) fmt::print("{}: {} members, {} samples\n", printable(name), index.size(), samples);
  }
  if (globals.json) fmt::print("{}\n", json.dump(1));
}

struct TarArguments {
  std::vector<std::string> manifests;
  std::string out, format = "nemo";
  data::ShardOptions options;
};

void run_tar(const TarArguments& arguments, const Globals& globals) {
  data::ShardOptions options = arguments.options;
  options.format = arguments.format == "nemo" ? data::ShardFormat::Nemo : data::ShardFormat::WebDataset;
  const data::ShardResult result =
      data::write_shards({arguments.manifests.begin(), arguments.manifests.end()}, arguments.out, options);
  if (globals.json) {
    fmt::print("{}\n", Json{{"schema_version", 1},
                            {"out", arguments.out},
                            {"shards", result.num_shards},
                            {"entries", result.num_entries},
                            {"files", result.num_files},
                            {"dropped", result.num_dropped},
                            {"bytes", result.num_bytes}}
                           .dump(1));
    return;
  }
  fmt::print("{} entries ({} files, {}) in {} tars in {}\n", result.num_entries, result.num_files,
             format_bytes(result.num_bytes), result.num_shards, printable(arguments.out));
  if (result.num_dropped > 0)
    fmt::print("{} entries are left out so that the shards are equal, as NeMo's are\n", result.num_dropped);
}

struct SynthArguments {
  std::string kind, out;
};

// Every option of the generator is a flag: --num 100 --seed 3 --median_seconds 2.
void run_synth(const SynthArguments& arguments, const CLI::App& command, const Globals& globals) {
  data::SynthConfig config;
  config::Schema schema;
  schema.section("", config);
  config::RequestSource source;
  source.overrides = command.remaining();
  source.overrides.insert(source.overrides.begin(), "kind=" + arguments.kind);
  config::bind(config::read_request(source, schema), schema);
  const data::SynthResult result = data::synthesize(config, arguments.out);
  if (globals.json) {
    fmt::print("{}\n", Json{{"schema_version", 1},
                            {"train", result.train.string()},
                            {"validation", result.validation.string()},
                            {"noise", result.noise.string()},
                            {"items", result.num_items},
                            {"bytes", result.num_bytes}}
                           .dump(1));
    return;
  }
  fmt::print("{} items, {}\n  training   {}\n  validation {}\n", result.num_items, format_bytes(result.num_bytes),
             printable(result.train.string()), printable(result.validation.string()));
  if (!result.noise.empty()) fmt::print("  noise      {}\n", printable(result.noise.string()));
}

void add_order(CLI::App& parent, const Globals& globals) {
  auto arguments = std::make_shared<OrderArguments>();
  CLI::App* command = parent.add_subcommand("order", "Print the sample ids of each batch, as the plan has them");
  add_data_arguments(*command, arguments->from);
  command->add_option("--epoch", arguments->epoch, "Epoch, from 0");
  command->add_option("--ranks", arguments->ranks, "Number of ranks")->check(CLI::Range(1, 65536));
  command->add_option("--rank", arguments->rank, "The rank to print, from 0");
  command->add_option("--skip", arguments->skip, "Start after so many optimiser steps");
  command->add_option("--limit", arguments->limit, "Print at most so many optimiser steps");
  command->callback([arguments, command, &globals] { run_order(*arguments, *command, globals); });
}

void add_stats(CLI::App& parent, const Globals& globals) {
  auto arguments = std::make_shared<StatsArguments>();
  CLI::App* command =
      parent.add_subcommand("stats", "Lengths, and the share of padding per batch size with and without buckets");
  add_data_arguments(*command, arguments->from);
  command->add_option("--buckets", arguments->buckets, "Buckets of the second column")->check(CLI::Range(2, 255));
  command->add_option("--batch-sizes", arguments->batch_sizes, "Batch sizes of the table")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->callback([arguments, command, &globals] { run_stats(*arguments, *command, globals); });
}

void add_bench(CLI::App& parent, const Globals& globals) {
  auto arguments = std::make_shared<BenchArguments>();
  CLI::App* command = parent.add_subcommand("bench", "Run the loader alone and measure it");
  add_data_arguments(*command, arguments->from);
  command->add_option("--workers", arguments->workers, "Workers instead of the config's")->check(CLI::Range(0, 64));
  command->add_option("--seconds", arguments->options.seconds, "How long")->check(CLI::PositiveNumber);
  command->add_option("--batches", arguments->options.max_batches, "Stop after so many batches");
  command->callback([arguments, command, &globals] { run_bench(*arguments, *command, globals); });
}

void add_preparation(CLI::App& parent, const Globals& globals) {
  auto tars = std::make_shared<std::vector<std::string>>();
  CLI::App* index = parent.add_subcommand("index", "Write the index of tars beside them");
  index->add_option("tars", *tars, "Tar files")->required();
  index->callback([tars, &globals] { run_index(*tars, globals); });

  auto tar_arguments = std::make_shared<TarArguments>();
  CLI::App* tar = parent.add_subcommand("tar", "Pack a manifest's audio into NeMo or WebDataset tars");
  tar->add_option("manifests", tar_arguments->manifests, "NeMo manifests")->required();
  tar->add_option("--out", tar_arguments->out, "Folder to write")->required();
  tar->add_option("--format", tar_arguments->format, "nemo or webdataset")
      ->check(CLI::IsMember({"nemo", "webdataset"}));
  tar->add_option("--num-shards", tar_arguments->options.num_shards, "Number of tars");
  tar->add_flag("--shuffle", tar_arguments->options.shuffle, "Shuffle entries over the shards");
  tar->add_option("--seed", tar_arguments->options.seed, "Seed of the shuffle");
  tar->callback([tar_arguments, &globals] { run_tar(*tar_arguments, globals); });

  auto synth_arguments = std::make_shared<SynthArguments>();
  CLI::App* synth = parent.add_subcommand(
      "synth", "Generate data: speech, sequences or images; other words are options of the generator");
  synth->add_option("kind", synth_arguments->kind, "speech, sequences or images")->required();
  synth->add_option("--out", synth_arguments->out, "Folder to write")->required();
  synth->allow_extras();
  synth->callback([synth_arguments, synth, &globals] { run_synth(*synth_arguments, *synth, globals); });
}

}  // namespace

void add_data_command(CLI::App& program, const Globals& globals) {
  CLI::App* parent = program.add_subcommand("data", "Look at, measure and prepare training data");
  parent->require_subcommand(1);
  parent->fallthrough();
  add_order(*parent, globals);
  add_stats(*parent, globals);
  add_bench(*parent, globals);
  add_preparation(*parent, globals);
}

}  // namespace redline::app
