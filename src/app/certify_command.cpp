// redline certify CONFIG --with "a=1 b=2" ...: does a setting train worse than the job as it is? Pairs of runs, judged
// on held-out samples.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "app/command.h"
#include "app/json_text.h"
#include "app/tune_arguments.h"
#include "core/error.h"
#include "core/strings.h"
#include "models/register.h"
#include "train/signals.h"

namespace redline::app {

void add_certify_command(CLI::App& program, const Globals& globals);

namespace {

struct CertifyArguments {
  ConfigArguments config;
  TuneArguments tune;
  std::vector<std::string> with, alike;
  tune::CertifyRequest what;
};

// A certificate as a tune card has it.
nlohmann::ordered_json certificate_json(const measure::Certificate& certificate) {
  measure::TuneCard card;
  card.certificate = certificate;
  return nlohmann::ordered_json::parse(measure::tune_card_to_json(card))["certificate"];
}

nlohmann::ordered_json estimate_json(const measure::RatioEstimate& e) {
  return {{"ratio", e.ratio}, {"low", e.interval.low}, {"high", e.interval.high}, {"blocks", e.blocks}};
}

void run_certify(CertifyArguments& arguments, const CLI::App& command, const Globals& globals) {
  task::Registry registry;
  models::register_all(registry);
  const config::RequestSource source = arguments.config.source(command);
  if (!source.file) throw ConfigError("certify needs a recipe (a YAML file).");
  for (const std::string& text : arguments.with) arguments.what.settings.push_back({parse_setting(text), false});
  for (const std::string& text : arguments.alike) arguments.what.settings.push_back({parse_setting(text), true});
  if (arguments.what.settings.empty()) throw ConfigError("certify needs a setting to judge: --with \"key=value\".");
  if (measure::most_pairs_within(arguments.what.most_pairs) != arguments.what.most_pairs)
    throw ConfigError("--pairs takes 3, 5, 8 or 12: the numbers of pairs after which a look may be the last.");
  const train::SignalScope signals;
  const auto rows = tune::certify_settings(make_tune_request(registry, source, arguments.tune), arguments.what);
  nlohmann::ordered_json json = {{"schema_version", 1}, {"settings", nlohmann::ordered_json::array()}};
  for (const tune::CertifyRow& row : rows) {
    nlohmann::ordered_json one = {{"setting", row.setting}, {"failure", row.failure}};
    if (row.failure.empty()) one["certificate"] = certificate_json(row.certificate);
    if (row.speed) one["speed"] = estimate_json(*row.speed);
    json["settings"].push_back(one);
    if (globals.json) continue;
    const std::string name = printable(doctor::setting_text(row.setting));
    if (row.failure.empty())
      fmt::print("{}: {}. {}\n", name, measure::certificate_kind_name(row.certificate.kind),
                 printable(row.certificate.reason));
    else
      fmt::print("{}: failed. {}\n", name, printable(row.failure));
  }
  if (globals.json) fmt::print("{}\n", json_text(json));
  if (std::all_of(rows.begin(), rows.end(), [](const tune::CertifyRow& row) { return !row.failure.empty(); }))
    throw Error(ExitCode::Failure, "None of the settings could be judged; the reason of each is above.");
}

}  // namespace

void add_certify_command(CLI::App& program, const Globals& globals) {
  auto arguments = std::make_shared<CertifyArguments>();
  CLI::App* command = program.add_subcommand(
      "certify", "Pairs of runs with the same seeds: is a setting worse than the job as it is, on held-out samples?");
  add_config_arguments(*command, arguments->config);
  command->add_option("--with", arguments->with, "A setting to judge: \"key=value key=value\"")
      ->allow_extra_args(false);
  command
      ->add_option("--alike", arguments->alike,
                   "The same of one that should change numbers or order only: learning more is held against it too")
      ->allow_extra_args(false);
  command
      ->add_option("--steps", arguments->what.steps,
                   "Length of a run in steps of the job; schedules are shortened to it")
      ->check(CLI::Range(2, 1000000000));
  command->add_option("--pairs", arguments->what.most_pairs, "Most pairs: 3, 5, 8 or 12; clear cases end earlier");
  add_certificate_arguments(*command, arguments->tune);
  command->add_flag("--companions", arguments->what.companions,
                    "What counts steps and the learning rate follow the batch, as in tuning");
  command->add_flag("--every-pair", arguments->what.every_pair, "Make all pairs, also of what is clear before");
  command
      ->add_option("--longest", arguments->what.longest,
                   "A setting may run on to so many times the samples, to see when it reaches the loss")
      ->check(CLI::Range(1.0, 100.0));
  command->add_flag("--speed", arguments->what.speed, "Race each setting too, for its time to the loss");
  command->callback([arguments, command, &globals] { run_certify(*arguments, *command, globals); });
}

}  // namespace redline::app
