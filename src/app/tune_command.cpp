// redline tune CONFIG: measures every switch on the user's own job, proves the winner, and writes a tuned recipe.
// redline race CONFIG --with "a=1 b=2" ...: named settings of a job in turns against the job as it is.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/terminal.h"
#include "app/tune_arguments.h"
#include "core/error.h"
#include "core/file_ops.h"
#include "core/log.h"
#include "core/strings.h"
#include "device/machine.h"
#include "models/register.h"
#include "report/page.h"
#include "report/tuned.h"
#include "train/launch.h"
#include "train/signals.h"
#include "tune/rank_tuning.h"

namespace redline::app {

void add_tune_command(CLI::App& program, const Globals& globals);
void add_race_command(CLI::App& program, const Globals& globals);

namespace {

struct TuneCommandArguments {
  ConfigArguments config;
  TuneArguments tune;
  std::string out, html, ranks;
};

// A whole recipe: the resolved job, each value with its origin, the tuned ones named as such.
std::string tuned_recipe(const task::Registry& registry, const config::RequestSource& source,
                         const tune::TuneResult& result) {
  const auto job = train::Job::read(registry, tuned_source(source, result), device::read_machine_facts());
  std::string head = "# Written by `redline tune`; a normal recipe: redline train THIS_FILE\n";
  head += fmt::format("# from {} on {} ({})\n", source.file ? printable(source.file->string()) : "flags",
                      printable(result.card.created), printable(result.card.fingerprint.machine));
  head += "# " + printable(tune_summary(result)) + "\n";
  if (result.card.certificate)
    head += fmt::format("# certificate: {}. {}\n", measure::certificate_kind_name(result.card.certificate->kind),
                        printable(result.card.certificate->reason));
  return head + job->resolved().dump_yaml();
}

void print_result(const tune::TuneResult& result, const std::string& recipe, const Globals& globals) {
  if (globals.json) {
    nlohmann::ordered_json json = {{"schema_version", 1},
                                   {"summary", tune_summary(result)},
                                   {"from_card", result.from_card},
                                   {"rechecked", result.rechecked},
                                   {"recipe", recipe},
                                   {"card_path", result.card_path.string()}};
    json["card"] = nlohmann::ordered_json::parse(measure::tune_card_to_json(result.card));
    fmt::print("{}\n", json_text(json, 1));
    return;
  }
  fmt::print("{}\n\n{}\nThe tuned recipe is {}{}.\n", printable(tune_summary(result)),
             printable_lines(report::tuned_text(result.card, terminal_width())), printable(recipe),
             result.card_path.empty() ? "" : fmt::format(" (card: {})", printable(result.card_path.string())));
}

// A recipe that is there may be somebody's own: it keeps a name.
void write_recipe(const std::filesystem::path& path, const std::string& text) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && read_file(path) != text) {
    std::filesystem::path kept;
    for (int i = 1; kept.empty() || std::filesystem::exists(kept, ignored); ++i)
      kept = path.string() + ".old" + (i == 1 ? "" : "-" + std::to_string(i));
    posix_file_ops().rename(path, kept);
    log_info(
        fmt::format("'{}' was there already; it is now '{}'.", printable(path.string()), printable(kept.string())));
  }
  write_file_atomic(path, text);
}

std::vector<int> parse_rank_counts(const std::string& text) {
  std::vector<int> counts;
  for (const std::string& word : split(text, ',')) {
    const auto count = parse_int(trim(word));
    if (!count || *count < 1 || *count > 1024)
      throw ConfigError("--ranks is '" + printable(text) + "'; expected numbers of ranks such as 1,2,4.");
    counts.push_back(static_cast<int>(*count));
  }
  return counts;
}

// Ranks are processes, and so are their trials.
tune::TuneResult tune_over_ranks(const tune::TuneRequest& request, const std::string& counts) {
  constexpr double kTrialGraceSeconds = 20;
  const std::filesystem::path scratch =
      std::filesystem::temp_directory_path() / fmt::format("redline-tune-{}", ::getpid());
  std::filesystem::create_directories(scratch);
  const auto launch = [&](int ranks, const std::vector<std::string>& words) {
    return train::launch_ranks(ranks, words, kTrialGraceSeconds, scratch / "said.txt");
  };
  try {
    tune::TuneResult result = tune::tune_ranks({request, parse_rank_counts(counts), scratch, launch});
    std::filesystem::remove_all(scratch);
    return result;
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove_all(scratch, ignored);
    throw;
  }
}

void run_tune(const TuneCommandArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  const config::RequestSource source = arguments.config.source(command);
  if (!source.file) throw ConfigError("tune needs a recipe (a YAML file).");
  const train::SignalScope signals;
  tune::TuneRequest request = make_tune_request(registry, source, arguments.tune);
  request.same = arguments.tune.same;
  const tune::TuneResult result =
      arguments.ranks.empty() ? tune::tune_job(request) : tune_over_ranks(request, arguments.ranks);
  const std::string out = arguments.out.empty() ? source.file->stem().string() + ".tuned.yaml" : arguments.out;
  write_recipe(out, tuned_recipe(registry, source, result));
  if (!arguments.html.empty()) {
    report::RunPart part;
    part.name = source.file->string();
    part.card = result.card;
    write_file_atomic(arguments.html, report::render_html({tune_summary(result), {std::move(part)}, {}}));
  }
  print_result(result, out, globals);
}

constexpr double kTooNoisy = 1.5;  // the ends of an interval this far apart say nothing

struct RaceArguments {
  ConfigArguments config;
  std::vector<std::string> with;
  int blocks = 6;
  std::string turn = "0.5s";
};

void run_race(const RaceArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  const config::RequestSource source = arguments.config.source(command);
  if (!source.file) throw ConfigError("race needs a recipe (a YAML file).");
  const auto turn = parse_seconds(arguments.turn);
  if (!turn || !(*turn > 0)) throw ConfigError("--turn takes a time such as 0.5s, not '" + arguments.turn + "'.");
  std::vector<tune::Setting> settings;
  for (const std::string& text : arguments.with) settings.push_back(parse_setting(text));
  const train::SignalScope signals;
  const auto rows = tune::race_settings(make_tune_request(registry, source, {}), settings, arguments.blocks, *turn);
  nlohmann::ordered_json json = {{"schema_version", 1}, {"settings", nlohmann::ordered_json::array()}};
  for (const tune::RaceRow& row : rows) {
    nlohmann::ordered_json one = {{"setting", row.setting}, {"failure", row.failure}};
    if (!row.mine.empty()) {
      const measure::RatioEstimate e = measure::compare_blocks(row.reference, row.mine);
      one["ratio"] = e.ratio;
      one["low"] = e.interval.low;
      one["high"] = e.interval.high;
      one["samples_per_second"] = 1 / measure::median(row.mine);
      one["reference_seconds"] = row.reference;
      one["seconds"] = row.mine;
      one["reference_samples_per_second"] = 1 / measure::median(row.reference);
      one["too_noisy"] = e.interval.high > kTooNoisy * e.interval.low;
      if (!globals.json)
        fmt::print("{}{:.3f} x ({:.3f} to {:.3f}), {:.1f} instead of {:.1f} samples/s: {}\n",
                   one["too_noisy"] ? "too noisy to say, give more --blocks: " : "", e.ratio, e.interval.low,
                   e.interval.high, 1 / measure::median(row.mine), 1 / measure::median(row.reference),
                   printable(doctor::setting_text(row.setting)));
    } else if (!globals.json) {
      fmt::print("failed: {}: {}\n", printable(doctor::setting_text(row.setting)), printable(row.failure));
    }
    json["settings"].push_back(one);
  }
  if (globals.json) fmt::print("{}\n", json_text(json));
  if (std::all_of(rows.begin(), rows.end(), [](const tune::RaceRow& row) { return row.mine.empty(); }))
    throw Error(ExitCode::Failure, "None of the settings could be raced; the reason of each is above.");
}

}  // namespace

void add_tune_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<TuneCommandArguments>();
  CLI::App* command = program.add_subcommand(
      "tune",
      "Measure every switch on this job, prove that the best combination trains no worse, write it as a recipe");
  add_config_arguments(*command, arguments->config);
  command->add_option("--budget", arguments->tune.budget, "Time to spend, e.g. 180s or 3m");
  command->add_option("--allow", arguments->tune.allow,
                      "What may change besides speed: numerics, order, optimisation (separated by commas)");
  command->add_option("--memory", arguments->tune.memory, "Most tensor memory a job may use, e.g. 8GiB");
  command->add_option("--card", arguments->tune.card, "Use and write this tune card instead of the cache's");
  add_certificate_arguments(*command, arguments->tune);
  command->add_option("--accept", arguments->tune.accept,
                      "not-shown: keep also what pairs of runs could not show to be no worse");
  command->add_flag("--fresh", arguments->tune.fresh, "Tune even when there is a card");
  command->add_flag("--full", arguments->tune.full, "Race every switch for the ledger, also those that cannot gain");
  command->add_option(
      "--same", arguments->tune.same,
      "A check of the tuner itself: race the job against itself under so many names; every gain is false");
  command->add_option("--ranks", arguments->ranks,
                      "Tune ranks instead: how many on this machine, e.g. 1,2,4, the size of buckets and, with --allow "
                      "numerics, what gradients are sent as");
  command->add_option("--out", arguments->out, "The tuned recipe; default: NAME.tuned.yaml in this folder");
  command->add_option("--html", arguments->html, "Write ledger and certificate as a page to this file");
  command->callback([arguments, command, &globals] { run_tune(*arguments, *command, globals); });
}

void add_race_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<RaceArguments>();
  CLI::App* command = program.add_subcommand("race", "Run settings of a job in turns and say which is faster");
  add_config_arguments(*command, arguments->config);
  command->add_option("--with", arguments->with, "A setting to race against the job as it is: \"key=value key=value\"")
      ->required()
      ->allow_extra_args(false);
  command->add_option("--blocks", arguments->blocks, "Interleaved blocks (A B B A) of each")
      ->check(CLI::Range(1, 1000));
  command->add_option("--turn", arguments->turn, "How long one turn lasts");
  command->callback([arguments, command, &globals] { run_race(*arguments, *command, globals); });
}

}  // namespace redline::app
