// redline data order|stats|bench: looks at and measures training data without training.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "app/data_job.h"
#include "app/json_text.h"
#include "core/error.h"
#include "core/hash.h"
#include "core/strings.h"
#include "data/loader_bench.h"
#include "data/plan_stats.h"

namespace redline::app {

void add_data_command(CLI::App& program, const Globals& globals);

namespace {

using Json = nlohmann::ordered_json;

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
  const data::SplitSettings split = data::split_settings(job.dataset, job.needs, planner->settings());
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
    fmt::print("{}\n", json_text(stats_json(stats, planner->filtered(), unit, rows, arguments.buckets), 1));
    return;
  }
  fmt::print("{} samples, {:.6g} {} in all; kept {}, too short {}, too long {}\n", stats.count, stats.total, unit,
             planner->filtered().kept, planner->filtered().too_short, planner->filtered().too_long);
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
  const double asked = arguments.options.seconds;
  if (!(asked > 0) || !std::isfinite(asked)) throw ConfigError("--seconds must be above 0.");
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
  if (const std::string name = job.needs.kind->length_rate_name(); !name.empty())
    json[name] = static_cast<double>(result.items) / job.needs.kind->items_per_length(job.dataset) / seconds;
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
  if (const int64_t looked_up = result.cache_hits + result.cache_misses; looked_up > 0)
    json["cache_hit_share"] = static_cast<double>(result.cache_hits) / static_cast<double>(looked_up);
  json["order_hash"] = hex64(result.order_hash);
  json["order_batches"] = result.order_batches;
  if (globals.json) {
    fmt::print("{}\n", json_text(json));
    return;
  }
  fmt::print("{:.0f} samples/s with {} workers ({} batches in {}), first batch after {}, waits p50 {} p99 {}\n",
             samples / seconds, job.dataset.num_workers.value(), result.batches, format_seconds(result.seconds),
             format_seconds(result.first_batch_seconds), format_seconds(result.wait_p50_seconds),
             format_seconds(result.wait_p99_seconds));
  fmt::print("padding {:.1f} %, {:.3g} CPU-seconds per 1,000 samples, peak memory {}, order {}\n", 100 * padding,
             1000.0 * result.cpu_seconds / samples, format_bytes(result.peak_rss_bytes), hex64(result.order_hash));
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
  command->add_option("--workers", arguments->workers, "Workers instead of the config's")
      ->check(CLI::Range(0, data::kMaxWorkers));
  command->add_option("--seconds", arguments->options.seconds, "How long");
  command->add_option("--batches", arguments->options.max_batches, "Stop after so many batches");
  command->callback([arguments, command, &globals] { run_bench(*arguments, *command, globals); });
}

}  // namespace

void add_data_command(CLI::App& program, const Globals& globals) {
  CLI::App* parent = program.add_subcommand("data", "Look at, measure and prepare training data");
  parent->require_subcommand(1);
  parent->fallthrough();
  add_order(*parent, globals);
  add_stats(*parent, globals);
  add_bench(*parent, globals);
  add_data_preparation(*parent, globals);
}

}  // namespace redline::app
